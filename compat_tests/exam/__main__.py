"""`python -m compat_tests.exam [BUG ...]` applies each mutant (all by default) and says which test caught it, and when.

Exit code 1: a mutant was not caught. For each mutant, a command is printed that shows the failure again; `--plant
DIRECTORY` makes the sources with one mutant for that command. The last line sums up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from compat_tests.exam.examination import Outcome, bugs, examine, plant
from engine.tests.ledger import note_for_ledger

COMMAND = "python -m compat_tests.exam"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("bugs", nargs="*", metavar="BUG", help=", ".join(bugs()))
    parser.add_argument("--plant", type=Path, metavar="DIRECTORY", help="apply one mutant here, in a new directory")
    asked = parser.parse_args()
    if unknown := set(asked.bugs) - set(bugs()):
        parser.error(f"there is no patch for {', '.join(sorted(unknown))}")
    if asked.plant is not None and len(asked.bugs) != 1:
        parser.error("--plant is for one bug")
    return asked


def report(outcome: Outcome) -> None:
    bug, found = outcome.bug, outcome.finding
    if found is None:
        print(f"{bug}: NOT CAUGHT within {outcome.seconds:.0f} s", flush=True)
        return
    print(f"{bug}: caught by {outcome.examiner} after {outcome.seconds:.0f} s: {found.words[:200]}")
    print(f"  {COMMAND} {bug} --plant /tmp/{bug} && cd /tmp/{bug} && PYTHONPATH=. {found.command}", flush=True)


def main() -> int:
    asked = arguments()
    if asked.plant is not None:
        asked.plant.mkdir(parents=True)
        plant(asked.bugs[0], asked.plant)
        return 0
    outcomes = []
    for bug in asked.bugs or bugs():
        with tempfile.TemporaryDirectory() as scratch:
            plant(bug, Path(scratch))
            outcomes.append(examine(bug, Path(scratch)))
        report(outcomes[-1])
    caught = [outcome for outcome in outcomes if outcome.finding]
    times = ", ".join(f"{one.bug} {one.seconds:.0f} s" for one in caught)
    line = f"{len(caught)} of {len(outcomes)} planted bugs caught: {times}"
    print(line)
    note_for_ledger(line)
    return int(len(caught) < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
