"""Mutation test: `python -m compat_tests.mutants [MUTANT ...]` applies mutants (default: all), and names their finders.

Exit code 1: a mutant was not caught. For each mutant, a command is printed that shows the failure again; `--plant
DIRECTORY` makes the sources with one mutant for that command. The last line sums up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from compat_tests.mutants.trial import TrialResult, apply_mutant, mutants, record_case, try_mutant
from testkit.ledger import note_for_ledger

COMMAND = "python -m compat_tests.mutants"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help=", ".join(mutants()))
    parser.add_argument("--plant", type=Path, metavar="DIRECTORY", help="apply one mutant here, in a new directory")
    parser.add_argument("--record", action="store_true", help="write the cases that caught mutants into their patches")
    asked = parser.parse_args()
    if unknown := set(asked.mutants) - set(mutants()):
        parser.error(f"there is no patch for {', '.join(sorted(unknown))}")
    if asked.plant is not None and len(asked.mutants) != 1:
        parser.error("--plant is for one mutant")
    return asked


def report(result: TrialResult) -> None:
    mutant, found = result.mutant, result.finding
    if found is None:
        print(f"{mutant}: NOT CAUGHT within {result.seconds:.0f} s", flush=True)
        return
    print(f"{mutant}: caught by {result.test} after {result.seconds:.0f} s: {found.words[:200]}")
    print(f"  {COMMAND} {mutant} --plant /tmp/{mutant} && cd /tmp/{mutant} && PYTHONPATH=. {found.command}", flush=True)


def tried(mutant: str, scratch: Path) -> TrialResult:
    """The result of a mutant. A test that could not run has not caught it, and the others go on."""
    started_s = time.monotonic()
    try:
        return try_mutant(mutant, scratch)
    except RuntimeError as error:
        print(f"{mutant}: {error}", flush=True)
        return TrialResult(mutant, time.monotonic() - started_s)


def main() -> int:
    asked = arguments()
    if asked.plant is not None:
        asked.plant.mkdir(parents=True)
        apply_mutant(asked.mutants[0], asked.plant)
        return 0
    outcomes = []
    for mutant in asked.mutants or mutants():
        with tempfile.TemporaryDirectory() as scratch:
            apply_mutant(mutant, Path(scratch))
            outcomes.append(tried(mutant, Path(scratch)))
        report(outcomes[-1])
        if asked.record:
            record_case(outcomes[-1])
    caught = [outcome for outcome in outcomes if outcome.finding]
    times = ", ".join(f"{one.mutant} {one.seconds:.0f} s" for one in caught)
    line = f"{len(caught)} of {len(outcomes)} mutants caught: {times}"
    print(line)
    note_for_ledger(line)
    return int(len(caught) < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
