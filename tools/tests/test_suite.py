"""Tests of the suite runner: a skip for a missing tool is a failure in CI and only there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from tools import suite

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="ok"/>
<testcase classname="a" name="red"><failure message="no"/></testcase>
<testcase classname="a" name="broken"><error message="no"/></testcase>
<testcase classname="a" name="tool"><skipped message="needs kcat: not on the PATH"/></testcase>
<testcase classname="a" name="other"><skipped message="only on Windows"/></testcase>
</testsuite></testsuites>"""
AGAIN = """<testsuites><testsuite>
<testcase classname="a" name="late"/>
<testcase classname="a" name="late"/>
<testcase classname="a" name="later"/>
<testcase classname="a" name="later"><failure message="no"/></testcase>
</testsuite></testsuites>"""


def test_ci_runs_what_the_readme_tells_a_user_to_run() -> None:
    steps = (suite.ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert steps[-1] == "make test"
    assert "\nmake test\n" in (suite.ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("in_ci", "failed", "skipped"), [(False, 2, 2), (True, 3, 1)])
def test_skip_for_a_missing_tool(tmp_path: Path, in_ci: bool, failed: int, skipped: int) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert suite.count(report, in_ci) == suite.Tally(passed=1, failed=failed, skipped=skipped)


def test_a_test_that_was_retried_counts_once(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(AGAIN)
    assert suite.count(report, in_ci=True) == suite.Tally(passed=1, failed=1)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[IO[str]]:
    """The reading end of a pipe. It ends when no process is left that may write to it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(reader) as lines:
        yield lines


def all_of(pipe: IO[str]) -> str:
    os.set_blocking(pipe.fileno(), True)
    return pipe.read()


def shell(name: str, script: str, *, timeout_s: int = 60, has_company: bool = True) -> suite.Stage:
    return suite.Stage(name, ["/bin/sh", "-c", script], timeout_s, has_company=has_company)


def hanging(pipe: Path, timeout_s: int, then: str = ":", *, has_company: bool = False) -> suite.Stage:
    """A stage that waits for a program that it started."""
    script = f"(echo started; {then}; exec sleep 60) > {pipe} & wait"
    return shell("hangs", script, timeout_s=timeout_s, has_company=has_company)


@pytest.mark.parametrize("has_company", [False, True])
def test_a_stage_that_hangs_fails_and_leaves_nothing(
    tmp_path: Path, pipe: IO[str], capsys: pytest.CaptureFixture[str], has_company: bool
) -> None:
    stage = hanging(tmp_path / "pipe", 5, has_company=has_company)
    assert suite.run_all([stage], in_ci=False) == suite.Tally(failed=1)
    assert "not done after 5 s" in capsys.readouterr().out
    assert all_of(pipe) == "started\n"


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Handle SIGINT, as the suite does: processes that a shell started in its background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("has_company", [False, True])
def test_an_interrupt_of_the_runner_ends_all_running_stages(tmp_path: Path, pipe: IO[str], has_company: bool) -> None:
    quiet = hanging(tmp_path / "pipe", 60, has_company=has_company)
    interrupt = f"sleep 0.5; kill -INT {os.getpid()}"  # not while a stage is being started: then nothing could end it
    loud = hanging(tmp_path / "pipe", 60, then=interrupt, has_company=has_company)
    with pytest.raises(KeyboardInterrupt):
        suite.run_all([quiet, loud] if has_company else [loud], in_ci=False)
    assert all_of(pipe) == "started\n" * (1 + has_company)


def test_stages_that_may_run_side_by_side_and_each_is_heard_in_one_piece(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("there", "back"):
        os.mkfifo(tmp_path / name)
    there, back = tmp_path / "there", tmp_path / "back"  # opened by one, they wait for the other
    first = shell("first", f"echo one; echo > {there}; cat {back}; echo two")
    second = shell("second", f"echo three; cat {there}; echo four; echo > {back}")
    assert suite.run_all([first, second], in_ci=False) == suite.Tally(passed=2)
    said = [line for line in capfd.readouterr().out.splitlines() if line]
    assert said[:2] == ["=== first", "=== second"]
    pieces = [said[2:5], said[5:]]
    assert sorted(piece[:2] for piece in pieces) == [["one", "two"], ["three", "four"]]


def test_a_stage_without_company_waits_for_the_others_and_they_for_it(capfd: pytest.CaptureFixture[str]) -> None:
    stages = [shell(name, "sleep 0.1", has_company=name != "alone") for name in ("before", "alone", "after")]
    suite.run_all(stages, in_ci=False)
    names = [line.removeprefix("=== ").partition(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert names == ["before", "before", "alone", "alone", "after", "after"]


def test_after_a_failed_stage_no_stage_starts_and_running_stages_finish() -> None:
    red, green = shell("red", "exit 1"), shell("green", "sleep 1")
    beside = [green] * (suite.SIDE_BY_SIDE_MAX - 1)
    for stages in ([*beside, red, green], [red, *beside, green]):
        assert suite.run_all(stages, in_ci=False) == suite.Tally(passed=len(beside), failed=1)


def test_each_stage_has_its_own_temporary_directory_that_is_removed_afterwards(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    look = f"echo $PYTEST_DEBUG_TEMPROOT; test -d $PYTEST_DEBUG_TEMPROOT && touch {tmp_path}/there"
    tally = suite.run_all([shell("one", look), shell("other", look)], in_ci=False)
    places = {line for line in capfd.readouterr().out.splitlines() if line.startswith("/")}
    assert tally.passed == len(places) == 2
    assert (tmp_path / "there").exists()
    assert not any(Path(place).exists() for place in places)
