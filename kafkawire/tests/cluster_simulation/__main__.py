"""Command line of the simulation of three brokers. `python -m kafkawire.tests.cluster_simulation --seed N` repeats a
seed; `--seeds A:B` runs many.

Exit code 1: an anomaly was found. Each anomaly is printed with its seed, the command that repeats it, and the faults it
needs. The last line sums up.
"""

from __future__ import annotations

import sys

from kafkawire.tests.cluster_simulation.plan import plan
from kafkawire.tests.cluster_simulation.run import run_seed
from kafkawire.tests.simulation.command import Simulation, Sum, main


def summary(total: Sum) -> str:
    counts = "".join(f", {count} {name}" for name, count in total.counts.items())
    return f"{total.seeds}, {total.operations} operations, {total.lives} lives, {total.faults} faults that bit{counts}"


THREE_BROKERS = Simulation(
    "python -m kafkawire.tests.cluster_simulation",
    __doc__,
    run_seed,
    lambda seed: [one.value for one in plan(seed).faults],
    summary,
)

if __name__ == "__main__":
    sys.exit(main(THREE_BROKERS))
