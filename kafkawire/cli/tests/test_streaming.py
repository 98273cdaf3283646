"""What is shown of long work, and how it is ended."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from kafkawire.cli.streaming import Progress, run_until_stopped
from kafkawire.client.errors import ClientError


async def test_progress_is_one_line_that_is_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(wanted=True)
    progress.add(1_200, 3_400_000)
    with trio.move_on_after(2.5):
        await progress.show()
    shown = capsys.readouterr()
    assert shown.out == ""
    first, second, cleared = [line.strip() for line in shown.err.split("\r") if line]
    assert first.startswith("1,200 records, 3.4 MB, ")
    assert second.startswith("1,200 records, 3.4 MB, ")
    assert cleared == ""


async def test_no_progress_is_shown_where_none_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    await Progress(wanted=False).show()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_work(number: signal.Signals) -> None:
    async def work() -> None:
        os.kill(os.getpid(), number)
        await trio.sleep_forever()

    assert not run_until_stopped(work, Progress(wanted=False))


def test_the_end_and_failures_of_the_work() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ClientError("no")

    async def write_to_nobody() -> None:
        await trio.lowlevel.checkpoint()
        raise BrokenPipeError

    assert run_until_stopped(trio.lowlevel.checkpoint, Progress(wanted=False))
    assert run_until_stopped(write_to_nobody, Progress(wanted=False))
    with pytest.raises(ClientError, match="no"):
        run_until_stopped(fail, Progress(wanted=False))
