"""Progress of long work, and the ways to end it."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO

import pytest
import trio
import trio.testing

from kafkawire.cli.common.streaming import Input, Output, Progress, run_until_stopped
from kafkawire.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator


async def test_progress_rewrites_one_line_and_clears_it_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_pipe_whose_reader_closes_ends_the_run() -> None:
    """A pipe whose reader is gone ends the run without a write, like `consume | head` on an idle topic."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        output = output_to(pipe)

        async def work() -> None:
            await output.write(b"once")
            assert os.read(reader, 4) == b"once"
            assert not output.has_no_reader()
            os.close(reader)
            await trio.sleep_forever()

        assert run_until_stopped(work, Progress(wanted=False), output.has_no_reader)


def test_output_in_memory_always_has_a_reader() -> None:
    assert not output_to(io.BytesIO()).has_no_reader()


def test_a_full_output_device_raises_a_client_error() -> None:
    async def work() -> None:
        await output.write(b"1")

    with Path("/dev/full").open("wb", buffering=0) as full:
        output = output_to(full)
        with pytest.raises(ClientError, match="input or output: No space left on device"):
            run_until_stopped(work, Progress(wanted=False))


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    """A non-blocking pipe that is empty or full for the moment does not end the run."""
    data = bytes(1 << 20)
    received = bytearray()

    async def copy() -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        with os.fdopen(reader, "rb", buffering=0) as source, os.fdopen(writer, "wb", buffering=0) as target:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take, input_of(source))
                await trio.testing.wait_all_tasks_blocked(0.05)
                await output_to(target).write(data)
                target.close()

    async def take(source: Input) -> None:
        while piece := await source.read():
            received.extend(piece)

    assert run_until_stopped(copy, Progress(wanted=False))
    assert received == data


@pytest.mark.parametrize(
    ("stream", "opened", "line"), [("stdin", Input, "no standard input"), ("stdout", Output, "no standard output")]
)
def test_a_stream_that_was_closed_before(
    stream: str, opened: type[Input | Output], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(ClientError, match=line):
        opened()


def output_to(file: BinaryIO) -> Output:
    with mock_stream("stdout", file):
        return Output()


def input_of(file: BinaryIO) -> Input:
    with mock_stream("stdin", file):
        return Input()


@contextmanager
def mock_stream(name: str, file: BinaryIO) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, name, SimpleNamespace(buffer=file))
        yield
