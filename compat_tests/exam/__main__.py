"""`python -m compat_tests.exam [BUG ...]` plants each bug (all by default) and tells who caught it, and how fast.

Exit code 1: one was not caught. The last line sums up.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from compat_tests.exam.examination import bugs, examine, plant


def main() -> int:
    outcomes = []
    for bug in sys.argv[1:] or bugs():
        with tempfile.TemporaryDirectory() as scratch:
            plant(bug, Path(scratch))
            outcome = examine(bug, Path(scratch))
        by = f"caught by {outcome.examiner}" if outcome.examiner else "NOT CAUGHT"
        print(f"{bug}: {by} after {outcome.seconds:.0f} s: {outcome.words[:200]}", flush=True)
        outcomes.append(outcome)
    caught = [outcome for outcome in outcomes if outcome.examiner]
    slowest_s = max((outcome.seconds for outcome in caught), default=0.0)
    line = f"{len(caught)} of {len(outcomes)} planted bugs caught, the slowest after {slowest_s:.0f} s"
    print(line)
    if "KAFKAWIRE_LEDGER_SUMMARY" in os.environ:
        Path(os.environ["KAFKAWIRE_LEDGER_SUMMARY"]).write_text(line, encoding="utf-8")
    return int(len(caught) < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
