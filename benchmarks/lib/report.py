"""Result of a benchmark, as text for people and JSON for later comparison."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Apache Kafka as shipped, and as durable as kafkawire; benchmarks.parts.floor; Spark's own connector as shipped, and
# tuned; an earlier version of kafkawire.
BASELINES = ("Kafka", "Kafka fsync", "floor", "stock", "stock tuned", "earlier")

Figures = Mapping[str, float]  # one contender once: by name, with the unit in the name


@dataclass(frozen=True)
class Result:
    """The result of a case: the runs of each contender, in the order of the alternations."""

    case: str
    compared: str  # the figure a ratio compares: a fetch is judged by its bytes, for a broker may answer with fewer
    runs: dict[str, list[Figures]]
    bound: str = ""  # the limit of the figures, if there is one

    def ratios(self, contender: str, baseline: str) -> list[float]:
        """Contender to baseline, alternation by alternation."""
        pairs = zip(self.runs[contender], self.runs[baseline], strict=True)
        return [ours[self.compared] / theirs[self.compared] for ours, theirs in pairs]

    @property
    def columns(self) -> list[str]:
        return list(next(iter(self.runs.values()))[0])


@dataclass(frozen=True)
class Report:
    facts: dict[str, str]
    results: list[Result]
    rss_peak_mib: dict[str, float] = field(default_factory=dict)


def rows(result: Result) -> list[list[str]]:
    """A row per contender: medians, then the ratios to the baselines with their spread."""
    found = []
    for contender, runs in result.runs.items():
        medians = [shown(statistics.median(run[name] for run in runs)) for name in result.columns]
        ratios = [
            "" if contender == baseline else spread(result.ratios(contender, baseline)) for baseline in measured(result)
        ]
        found.append([contender, *medians, *ratios])
    return found


def shown(figure: float) -> str:
    return format(figure, ".0f" if abs(figure) >= 100 else ".2f")


def measured(result: Result) -> list[str]:
    return [baseline for baseline in BASELINES if baseline in result.runs]


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def heading(result: Result) -> list[str]:
    return ["contender", *result.columns, *(f"{result.compared} to {baseline}" for baseline in measured(result))]


def as_text(result: Result) -> str:
    """The result of a case in columns, for the terminal."""
    table = [heading(result), *rows(result)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    bound = [f"bound: {result.bound}"] if result.bound else []
    return "\n".join([f"--- {result.case}", *bound, *lines])


def as_markdown(report: Report, title: str) -> str:
    alternations = len(next(iter(report.results[0].runs.values())))
    lines = [f"# {title}", ""]
    lines += [f"- {name}: {value}" for name, value in report.facts.items()]
    lines += [f"- alternations: {alternations}; figures are medians, the ratio is followed by its smallest and largest"]
    lines += [f"- RSS peak of {name}: {peak:.0f} MiB" for name, peak in report.rss_peak_mib.items()]
    for result in report.results:
        lines += ["", f"## {result.case}", ""]
        lines += [f"Bound: {result.bound}", ""] if result.bound else []
        head = heading(result)
        table = [head, ["---"] * len(head), *rows(result)]
        lines += ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def write(report: Report, directory: Path, name: str) -> Path:
    """Writes `<name>.md` and `<name>.json`; returns the former."""
    directory.mkdir(parents=True, exist_ok=True)
    document = directory / f"{name}.md"
    document.write_text(as_markdown(report, name))
    (directory / f"{name}.json").write_text(json.dumps(dataclasses.asdict(report), indent=1) + "\n")
    return document
