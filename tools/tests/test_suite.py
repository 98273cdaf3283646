"""The suite runner counts what it must: a skip for a missing tool is a failure in CI and only there."""

from __future__ import annotations

import os
import signal
from typing import IO, TYPE_CHECKING

import pytest

from tools import suite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="ok"/>
<testcase classname="a" name="red"><failure message="no"/></testcase>
<testcase classname="a" name="broken"><error message="no"/></testcase>
<testcase classname="a" name="tool"><skipped message="needs kcat: not on the PATH"/></testcase>
<testcase classname="a" name="other"><skipped message="only on Windows"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(("in_ci", "failed", "skipped"), [(False, 2, 2), (True, 3, 1)])
def test_skip_for_a_missing_tool(tmp_path: Path, in_ci: bool, failed: int, skipped: int) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert suite.count(report, in_ci) == suite.Tally(passed=1, failed=failed, skipped=skipped)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[IO[str]]:
    """Its end is read when nobody is left who may write to it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(reader) as lines:
        yield lines


def all_of(pipe: IO[str]) -> str:
    os.set_blocking(pipe.fileno(), True)
    return pipe.read()


def hanging(pipe: Path, timeout_s: int, then: str = ":") -> suite.Stage:
    """It waits for a program that it started."""
    script = f"(echo started; {then}; exec sleep 60) > {pipe} & wait"
    return suite.Stage("hangs", ["/bin/sh", "-c", script], timeout_s)


def test_a_stage_that_hangs_fails_and_leaves_nothing(
    tmp_path: Path, pipe: IO[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.run(hanging(tmp_path / "pipe", 1), in_ci=False) == suite.Tally(failed=1)
    assert "not done after 1 s" in capsys.readouterr().out
    assert all_of(pipe) == "started\n"


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """As the suite makes itself: whoever was started by a shell in its background is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_of_the_runner_alone_ends_the_stage(tmp_path: Path, pipe: IO[str]) -> None:
    interrupt = f"sleep 0.5; kill -INT {os.getpid()}"  # not while the stage is being started: nobody could end it
    with pytest.raises(KeyboardInterrupt):
        suite.run(hanging(tmp_path / "pipe", 60, then=interrupt), in_ci=False)
    assert all_of(pipe) == "started\n"
