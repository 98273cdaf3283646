"""The pictures are of the newest figures, and can be drawn again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import pictures

RUN = {"req/s": 1.0, "p99 ms": 2.0, "CPU s": 3.0}


def test_pictures_are_drawn_from_the_newest_figures() -> None:
    for series in pictures.SERIES:
        drawn = (pictures.PICTURES / f"{series}.svg").read_text()
        assert pictures.newest().name in drawn, "run `python -m benchmarks.pictures`"


def test_points_are_in_order_of_size() -> None:
    results = [
        {"case": "1,000 partitions", "runs": {"kafkawire": [RUN]}},
        {"case": "records of 1,024 B", "runs": {"kafkawire": [RUN]}},
        {"case": "10 partitions", "runs": {"kafkawire": [RUN, {**RUN, "req/s": 3.0}]}},
    ]
    assert pictures.points(results, "partitions") == [
        (10, {"kafkawire": {"req/s": 2.0, "p99 ms": 2.0}}),
        (1000, {"kafkawire": {"req/s": 1.0, "p99 ms": 2.0}}),
    ]
    assert [size for size, _ in pictures.points(results, "records")] == [1024]


def test_drawing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -r requirements/spark.txt")
    source = tmp_path / "2026-01-01-growth.json"
    cases = ("records of 10 B", "10 partitions", "5 connections")
    source.write_text(json.dumps({"results": [{"case": case, "runs": {"kafkawire": [RUN]}} for case in cases]}))
    first = [path.read_bytes() for path in pictures.draw(source, tmp_path / "first")]
    assert len(first) == len(pictures.SERIES)
    assert first == [path.read_bytes() for path in pictures.draw(source, tmp_path / "again")]
