"""`python -m engine.tests.bit_flips --flips N` flips one bit after the other in data directories and opens them.

Exit code 1: a wrong byte was served, or records are missing without a report. Each anomaly is printed with the
arguments that repeat it. The last line sums up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from engine.tests.bit_flips.hunt import Hunt, hunt, repeat
from testkit.ledger import note_for_ledger

COMMAND = "python -m engine.tests.bit_flips"
ANOMALIES_SHOWN = 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--flips", type=int, help="number of flips")
    chosen.add_argument("--flip", type=int, help="number of a single flip of the seed, to repeat it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin no flip after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a seed of its own")
    return parser.parse_args()


def main() -> int:
    """Run the flips of the command line; returns the exit code."""
    asked = arguments()
    started_s = time.monotonic()
    if asked.flip is not None:
        done = [repeat(asked.seed, asked.flip)]
    else:
        one = partial(hunt, count=-(-asked.flips // asked.jobs), until_s=time.monotonic() + asked.budget_s)
        with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool:
            done = list(pool.map(one, range(asked.seed, asked.seed + asked.jobs)))
    total = Hunt()
    for part in done:
        total.reported += part.reported
        total.harmless += part.harmless
        total.anomalies += part.anomalies
    for line in total.anomalies[:ANOMALIES_SHOWN]:
        print(f"{COMMAND} {line}")
    for kind in sorted({*total.reported, *total.harmless}):
        print(f"  {kind}: {total.reported[kind]} reported, {total.harmless[kind]} without effect")
    reported = f"{total.reported.total()} reported, {total.harmless.total()} without effect"
    line = f"{total.flips} bits flipped, {reported}, {len(total.anomalies)} anomalies"
    print(f"{line}, {time.monotonic() - started_s:.0f} s")
    note_for_ledger(line)
    return int(bool(total.anomalies) or not total.flips)


if __name__ == "__main__":
    sys.exit(main())
