"""Exit code, line and report for the end of a job."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from spark_connectors.jobs import __main__ as entry
from spark_connectors.jobs.cli.common import Refused
from spark_connectors.jobs.report import JobOutcome, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.tables.errors import TableRefused


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Report | Exception]:
    """The end of the only job, as a list of one element."""
    found: list[Report | Exception] = [Report("rest", {})]
    command = ModuleType("spark_connectors.jobs.cli.rest")

    def run(_: argparse.Namespace, session: Session) -> Report:
        session.progress.update("resting", 1, 1)
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    vars(command).update(NAME="rest", HELP="Rests.", add_arguments=lambda _: None, run=run)
    monkeypatch.setitem(sys.modules, command.__name__, command)
    monkeypatch.setattr(entry, "COMMANDS", ("rest",))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return found


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Report("rest", {}), 0),
        (Report("rest", {}, JobOutcome.DIFFERS), 1),
        (Report("rest", {}, JobOutcome.STOPPED, reason="why"), 1),
        (OSError("disk"), 1),
        (Refused("no"), 2),
        (TableRefused("no"), 2),
    ],
)
def test_exit_codes(ends: list[Report | Exception], end: Report | Exception, code: int) -> None:
    ends[0] = end
    assert entry.main(["rest"]) == code


def test_a_dry_run_prints_what_the_job_would_do(
    ends: list[Report | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("rest", {})
    report.add(offsets_to_export=12)
    ends[0] = report
    entry.main(["rest", "--quiet", "--dry-run"])
    assert capsys.readouterr().err == "rest: dry run, nothing was changed: 12 offsets to export\n"


def test_an_error_is_one_line(ends: list[Report | Exception], capsys: pytest.CaptureFixture[str]) -> None:
    ends[0] = OSError("the disk is full")
    entry.main(["rest", "--quiet"])
    assert capsys.readouterr().err == "rest: OSError: the disk is full\n"


def test_first_three_findings_are_printed_to_standard_error(
    ends: list[Report | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("rest", {})
    for number in range(5):
        report.found(kind="missing", first=number)
    ends[0] = report
    entry.main(["rest", "--quiet"])
    shown = ", ".join(f'{{"kind": "missing", "first": {number}}}' for number in range(3))
    assert capsys.readouterr().err == f"rest: 5 findings: {shown}\n"


def test_progress_is_printed_to_standard_error(
    ends: list[Report | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    entry.main(["rest"])
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "resting: 100.0 % (1 of 1), 0 rows, 0 rows/s\n")


def test_report_is_written_after_a_failed_job(ends: list[Report | Exception], tmp_path: Path) -> None:
    ends[0] = OSError("the disk is full")
    entry.main(["rest", "--report", str(tmp_path / "report.json")])
    told = json.loads((tmp_path / "report.json").read_text())
    assert (told["outcome"], told["reason"]) == ("stopped", "OSError: the disk is full")


def test_a_report_goes_to_standard_output_too(
    ends: list[Report | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    entry.main(["rest", "--report", "-"])
    assert json.loads(capsys.readouterr().out)["outcome"] == "done"


def test_invalid_argument_exits_with_status_two(ends: list[Report | Exception]) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main(["rest", "--workers", "none"])
    assert end.value.code == 2


def test_only_the_requested_job_is_imported() -> None:
    """Imports of other jobs take as long as the work itself."""
    script = (
        "import sys\n"
        "from spark_connectors.jobs.__main__ import main\n"
        "try:\n"
        "    main(['export', '--help'])\n"
        "finally:\n"
        "    print(*(name for name in sys.modules if '.cli.' in name), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stderr.split()) == {f"spark_connectors.jobs.cli.{name}" for name in ("common", "export")}


@pytest.mark.skipif(sys.platform != "linux", reason="threads are looked up in /proc")
def test_numpy_has_no_threads_in_a_job() -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "import spark_connectors.jobs.__main__\n"
        "assert 'numpy' in sys.modules\n"
        "print(*(path.read_text().strip() for path in Path('/proc/self/task').glob('*/comm')))\n"
    )
    command = [sys.executable, "-c", script]
    without = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=without)
    assert [name for name in done.stdout.split() if not name.startswith("jemalloc")] == [Path(sys.executable).name[:15]]


def test_all_there_is_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        entry.main(["--help"])
    told = capsys.readouterr().out
    assert all(name.rstrip("_") in told for name in entry.COMMANDS)
