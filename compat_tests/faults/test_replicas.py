"""Tests of the comparison of replicas: it finds each difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.faults.replicas import differences

if TYPE_CHECKING:
    from pathlib import Path


def logs(directory: Path, *segments: bytes, first: int = 0) -> Path:
    (directory / "t-0").mkdir(parents=True)
    for number, segment in enumerate(segments, first):
        (directory / "t-0" / f"{number:020}.log").write_bytes(segment)
    return directory


def test_logs_with_other_segment_boundaries_or_a_shorter_end_do_not_differ(tmp_path: Path) -> None:
    assert differences({1: logs(tmp_path / "1", b"abc", b"de"), 2: logs(tmp_path / "2", b"ab", b"cd")}) == []


def test_segments_that_a_broker_has_only_in_the_remote_tier_are_not_compared(tmp_path: Path) -> None:
    whole = logs(tmp_path / "1", b"abc", b"de", b"fg")
    assert differences({1: whole, 2: logs(tmp_path / "2", b"de", b"f", first=1)}) == []
    assert differences({1: whole, 2: logs(tmp_path / "3", b"dX", first=1)}) == [
        "t-0 of brokers 1 and 2 differs from byte 1 on, of 4 and 2 bytes"
    ]
    assert differences({1: whole, 2: logs(tmp_path / "4", b"de", first=7)}) == [
        "t-0: no segment of brokers [1, 2] begins where one of each of the others does"
    ]


def test_a_byte_that_differs_is_found(tmp_path: Path) -> None:
    found = differences({1: logs(tmp_path / "1", b"abc", b"de"), 2: logs(tmp_path / "2", b"abX", b"d")})
    assert found == ["t-0 of brokers 1 and 2 differs from byte 2 on, of 5 and 4 bytes"]
