"""Shared by the `kafkawire bench` commands: run until the end or an interruption, then print the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafkawire.cli.common.cluster_command import Report
from kafkawire.cli.common.streaming import Progress, run_and_report
from kafkawire.client.load import percentile_ms

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Result of a run. `latencies_s` are the latencies of its requests."""

    records: int
    size_bytes: int
    seconds: float
    latencies_s: Sequence[float]

    def document(self) -> dict[str, Any]:
        """The result as a JSON object."""
        per_s = 1 / self.seconds if self.seconds else 0.0
        ordered = sorted(self.latencies_s)
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 6),
            "records_per_s": round(self.records * per_s, 1),
            "mb_per_s": round(self.size_bytes * per_s / 1e6, 3),
            "requests": len(ordered),
            "latency_ms": {
                name: round(percentile_ms(ordered, share), 3) if ordered else None
                for name, share in PERCENTILES.items()
            },
        }


def run_benchmark(
    work: Callable[[], Awaitable[None]],
    progress: Progress,
    found: Callable[[], BenchmarkResult],
    topic: str,
    output: str,
) -> int:
    """Run `work`, print the result, and return the exit code."""
    return run_and_report(work, progress, lambda: _report(topic, found()), as_json=output == "json")


def _report(topic: str, found: BenchmarkResult) -> Report:
    document = found.document()
    latency = document["latency_ms"]
    rows = [
        ("records", f"{document['records']:,} in {document['seconds']:.2f} s"),
        ("throughput", f"{document['records_per_s']:,.0f} records/s, {document['mb_per_s']:,.1f} MB/s"),
        ("latency", ", ".join(f"{name} {_shown(latency[name])} ms" for name in latency)),
        ("requests", f"{document['requests']:,}"),
    ]
    return Report({"topic": topic, **document}, rows=rows)


def _shown(latency_ms: float | None) -> str:
    return "-" if latency_ms is None else f"{latency_ms:.1f}"
