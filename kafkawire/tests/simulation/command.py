"""The command line of all simulations: it repeats one seed, or runs many, and finds the faults that a failure needs."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kafkawire.tests.simulation.run import Result, prepare
from testkit.ledger import note_for_ledger

ANOMALIES_SHOWN = 10


class RunSeed(Protocol):
    """The function that runs a seed, with all its faults or only the chosen ones."""

    def __call__(self, seed: int, faults: Collection[int] | None = None) -> Result: ...


class Simulation(NamedTuple):
    """A kind of simulation. `faults_of`: the names of a seed's faults; `summary`: its part of the last line."""

    command: str
    description: str
    run_seed: RunSeed
    faults_of: Callable[[int], Sequence[str]]
    summary: Callable[[Sum], str]


@dataclass
class Sum:
    """Totals of all seeds that ran."""

    seeds: int = 0
    operations: int = 0
    faults: int = 0
    lives: int = 0
    tiered: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: int = 0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.operations += result.operations
        self.faults += result.faults
        self.lives += result.lives
        self.tiered += result.tiered
        self.counts.update(result.counts)
        self.failed += bool(result.anomalies)


def arguments(simulation: Simulation) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=simulation.command, description=simulation.description)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="the seed to run")
    chosen.add_argument("--seeds", help="A:B runs the seeds from A up to, not including, B")
    parser.add_argument("--faults", help="numbers of the faults to keep, such as 0,3; only with --seed")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin no seed after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    return parser.parse_args()


def run_all(run_seed: RunSeed, seeds: Iterable[int], jobs: int, budget_s: float) -> Iterator[Result]:
    """Results in the order in which they come; no seed begins after `budget_s` seconds."""
    deadline_s = time.monotonic() + budget_s
    if jobs == 1:
        prepare()
        for one in seeds:
            if time.monotonic() > deadline_s:
                return
            yield run_seed(one)
        return
    remaining = iter(seeds)
    waiting: set[Future[Result]] = set()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, prepare) as pool:
        while True:
            while len(waiting) < jobs and time.monotonic() <= deadline_s:
                if (seed := next(remaining, None)) is None:
                    break
                waiting.add(pool.submit(run_seed, seed))
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for finished in done:
                yield finished.result()


def report(command: str, result: Result) -> None:
    """Print the anomalies of a seed, and the command that repeats it."""
    print(f"seed {result.seed} FAILED: {command} --seed {result.seed}")
    for anomaly in result.anomalies[:ANOMALIES_SHOWN]:
        print(f"  {anomaly.kind}: {anomaly.detail}")
    if len(result.anomalies) > ANOMALIES_SHOWN:
        print(f"  and {len(result.anomalies) - ANOMALIES_SHOWN} more")


def shrink(simulation: Simulation, result: Result) -> list[int]:
    """The faults that are needed for the failure: each is left out in turn."""
    kinds = {anomaly.kind for anomaly in result.anomalies}
    needed = list(range(len(simulation.faults_of(result.seed))))
    for number in list(needed):
        fewer = [one for one in needed if one != number]
        if kinds & {anomaly.kind for anomaly in simulation.run_seed(result.seed, fewer).anomalies}:
            needed = fewer
    return needed


def report_shrunk(simulation: Simulation, result: Result) -> None:
    """Print the faults that are needed for the failure."""
    faults = simulation.faults_of(result.seed)
    needed = shrink(simulation, result)
    names = "; ".join(faults[number] for number in needed)
    numbers = ",".join(map(str, needed))
    print(f"seed {result.seed} needs {len(needed)} of {len(faults)} faults: --faults {numbers} ({names})")


def main(simulation: Simulation) -> int:
    """Run the command line, and return the exit code."""
    asked = arguments(simulation)
    if asked.seed is not None:
        prepare()
        faults = None if asked.faults is None else [int(one) for one in asked.faults.split(",") if one]
        result = simulation.run_seed(asked.seed, faults)
        print(f"seed {result.seed}: {result.operations} operations, {result.faults} faults, trace {result.trace}")
        if result.anomalies:
            report(simulation.command, result)
        return int(bool(result.anomalies))
    first, _, last = asked.seeds.partition(":")
    started_s = time.monotonic()
    total = Sum()
    failed = None
    seeds = range(int(first), int(last))
    for result in run_all(simulation.run_seed, seeds, asked.jobs, asked.budget_s):
        total.add(result)
        if result.anomalies:
            report(simulation.command, result)
            failed = failed or result
            if not asked.keep_going:
                break
    if failed is not None and failed.trace:  # else the simulation itself fell over
        prepare()
        report_shrunk(simulation, failed)
    line = f"seeds from {asked.seeds}: {simulation.summary(total)}, {total.failed} failed"
    print(f"{line}, {time.monotonic() - started_s:.0f} s")
    note_for_ledger(line)
    return int(total.failed > 0 or not total.seeds)
