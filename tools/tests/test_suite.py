"""The suite runner counts what it must: a skip for a missing tool is a failure in CI and only there."""

from pathlib import Path

import pytest

from tools import suite

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


def test_a_stage_that_hangs_fails(capsys: pytest.CaptureFixture[str]) -> None:
    stage = suite.Stage("hangs", ["sleep", "60"], timeout_s=0)
    assert suite.run(stage, in_ci=False) == suite.Tally(failed=1)
    assert "not done after 0 s" in capsys.readouterr().out
