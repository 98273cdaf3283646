"""Prometheus' text format for what there may be very many of.

It is written down here, because prometheus_client takes many times as long, and in portions of about a millisecond, for
other tasks to run in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.stats import BUCKETS_S, Durations

PORTION: Final = 1_000

Sample = tuple[object, ...]  # labels and value, as a line has them


def lines(name: str, documentation: str, kind: str, labels: str, samples: Sequence[Sample]) -> Iterator[bytes]:
    """One family; `labels` is what the labels of a sample are formatted with: `topic="%s",partition="%d"`."""
    yield f"# HELP {name} {documentation}\n# TYPE {name} {kind}\n".encode()
    line = f"{name}{{{labels}}} %d\n"
    for start in range(0, len(samples), PORTION):
        yield "".join([line % sample for sample in samples[start : start + PORTION]]).encode()


def escaped(label: str) -> str:
    """A topic's name needs none of it; what a group is called is its clients' choice."""
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def text_of(families: Iterable[Metric]) -> bytes:
    """Of what is few."""
    return generate_latest(_Given(families))


def add_durations(family: HistogramMetricFamily, labels: Sequence[str], durations: Durations) -> None:
    buckets = zip([*map(str, BUCKETS_S), "+Inf"], accumulate(durations.in_bucket), strict=True)
    family.add_metric(labels, list(buckets), durations.sum_s)


class _Given(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
