"""Draws how throughput and p99 grow with records, partitions and connections: docs/pictures/*.svg.

It draws the medians of the last run of `benchmarks.brokers.growth`, and measures nothing. Each picture names its
source.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = Path(__file__).parent / "results"
PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
SERIES: Final = {"records": "bytes of a record", "partitions": "partitions", "connections": "connections"}
COLOURS: Final = {"kafkawire": "#0b6e4f", "kafkawire async": "#5fb49c", "Kafka": "#8a1c1c", "Kafka fsync": "#d98880"}
PANELS: Final = (("req/s", "requests per second"), ("p99 ms", "p99, ms"))

Points = list[tuple[int, dict[str, dict[str, float]]]]  # size, and the medians of each contender


def newest(directory: Path = RESULTS) -> Path:
    """The figures to be drawn."""
    return max(directory.glob("*-growth.json"))


def points(results: Sequence[dict[str, Any]], series: str) -> Points:
    """The points of one series, whose cases are called "records of 1,024 B" or "50 connections"."""
    found = []
    for result in results:
        words = result["case"].replace(",", "").split()
        if series not in words:
            continue
        size = next(int(word) for word in words if word.isdigit())
        medians = {
            contender: {name: statistics.median(run[name] for run in runs) for name, _ in PANELS}
            for contender, runs in result["runs"].items()
        }
        found.append((size, medians))
    return sorted(found, key=lambda point: point[0])


def draw(source: Path, directory: Path) -> list[Path]:
    """Draw one picture a series; the same figures give the same bytes with the same matplotlib."""
    import matplotlib as mpl  # only needed for drawing
    from matplotlib import pyplot as plt

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "kafkawire", "axes.spines.top": False, "axes.spines.right": False})
    results = json.loads(source.read_text())["results"]
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for series, label in SERIES.items():
        figure, panels = plt.subplots(1, len(PANELS), figsize=(9, 3.2), layout="constrained")
        found = points(results, series)
        for panel, (name, title) in zip(panels, PANELS, strict=True):
            for contender in found[0][1]:
                sizes = [size for size, _ in found]
                values = [medians[contender][name] for _, medians in found]
                panel.loglog(sizes, values, marker="o", markersize=3, color=COLOURS[contender], label=contender)
            panel.set(xlabel=label, title=title)
            panel.grid(visible=True, which="major", alpha=0.3)
        panels[0].legend(frameon=False, fontsize="small")
        path = directory / f"{series}.svg"
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Source": source.name})
        plt.close(figure)
        drawn.append(path)
    return drawn


def main() -> None:
    for path in draw(newest(), PICTURES):
        print(path)


if __name__ == "__main__":
    main()
