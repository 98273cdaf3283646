"""Prometheus' text format for metrics with very many samples.

prometheus_client would take many times as long. The text is made in portions of about a millisecond, so that other
tasks run in between.
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

Sample = tuple[object, ...]  # labels and value, in the order of a line


def lines(name: str, documentation: str, kind: str, labels: str, samples: Sequence[Sample]) -> Iterator[bytes]:
    """Lines of one family. `labels` is the format of the labels: `topic="%s",partition="%d"`."""
    yield f"# HELP {name} {documentation}\n# TYPE {name} {kind}\n".encode()
    line = f"{name}{{{labels}}} %d\n"
    for start in range(0, len(samples), PORTION):
        yield "".join([line % sample for sample in samples[start : start + PORTION]]).encode()


def escaped(label: str) -> str:
    """Escape a label. Topic names need no escaping; group ids are chosen by clients."""
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def text_of(families: Iterable[Metric]) -> bytes:
    """Text of a few families."""
    return generate_latest(_FixedFamilies(families))


def add_durations(family: HistogramMetricFamily, labels: Sequence[str], durations: Durations) -> None:
    buckets = zip([*map(str, BUCKETS_S), "+Inf"], accumulate(durations.in_bucket), strict=True)
    family.add_metric(labels, list(buckets), durations.sum_s)


class _FixedFamilies(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
