"""`python -m engine.tests.crash_states --workloads A:B` reopens the crash images of these seeded workloads.

Exit code 1: an anomaly was found. Each is printed with the arguments that repeat it. The last line sums up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from functools import partial

from engine.tests.crash_states.hunt import Found, hunt
from testkit.ledger import note_for_ledger

COMMAND = "python -m engine.tests.crash_states"
ANOMALIES_SHOWN = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--workload", type=int, help="a single seed")
    chosen.add_argument("--workloads", help="A:B runs the seeds from A up to, not including, B")
    parser.add_argument("--image", help="operations:number, one image of the workload")
    parser.add_argument("--share", type=float, default=1.0, help="share of the crash points, drawn by the seed")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="look at no image after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser.parse_args()


def hunt_all(seeds: range, jobs: int, share: float, budget_s: float) -> Iterator[Found]:
    """Results of the workloads, as they finish, up to the first one with an anomaly."""
    one = partial(hunt, share=share, until_s=time.monotonic() + budget_s)
    if jobs == 1:
        for seed in seeds:
            found = one(seed)
            yield found
            if found.anomalies:
                return
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:  # leaving the block ends the processes
        for found in pool.imap_unordered(one, seeds):
            yield found
            if found.anomalies:
                return


def main() -> int:
    """Run the workloads of the command line; returns the exit code."""
    asked = arguments()
    started_s = time.monotonic()
    if asked.workload is not None:
        prefix, _, number = (asked.image or "").partition(":")
        only = (int(prefix), int(number)) if asked.image else None
        results = iter([hunt(asked.workload, share=asked.share, only=only)])
    else:
        first, _, last = asked.workloads.partition(":")
        results = hunt_all(range(int(first), int(last)), asked.jobs, asked.share, asked.budget_s)
    images = workloads = anomalies = 0
    for found in results:
        images += found.images
        workloads += found.images > 0
        anomalies += len(found.anomalies)
        for line in found.anomalies[:ANOMALIES_SHOWN]:
            print(f"{COMMAND} {line}")
    line = f"{images} crash images of {workloads} workloads, {anomalies} anomalies"
    print(f"{line}, {time.monotonic() - started_s:.0f} s")
    note_for_ledger(line)
    return int(anomalies > 0 or images == 0)


if __name__ == "__main__":
    sys.exit(main())
