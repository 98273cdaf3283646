"""Command line of the simulation of one broker. `python -m kafkawire.tests.simulation --seed N` repeats a seed;
`--seeds A:B` runs many. Seeds from 1000000 on have a remote tier.

Exit code 1: an anomaly was found. Each anomaly is printed with its seed, the command that repeats it, and the faults it
needs. The last line sums up.
"""

from __future__ import annotations

import sys

from kafkawire.tests.simulation.command import Simulation, Sum, main
from kafkawire.tests.simulation.plan import plan
from kafkawire.tests.simulation.run import run_seed


def summary(total: Sum) -> str:
    return (
        f"{total.seeds}, {total.operations} operations, {total.lives} lives, "
        f"{total.faults} faults that bit, {total.tiered} segments in a tier"
    )


ONE_BROKER = Simulation(
    "python -m kafkawire.tests.simulation",
    __doc__,
    run_seed,
    lambda seed: [one.value for one in plan(seed).faults],
    summary,
)

if __name__ == "__main__":
    sys.exit(main(ONE_BROKER))
