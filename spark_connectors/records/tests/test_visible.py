"""What a reader may see of transactions."""

from __future__ import annotations

from engine.api import Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch, stamp
from engine.batches.markers import build_marker
from spark_connectors.records.batches import batches_of
from spark_connectors.records.visible import visible


def log(*steps: tuple[str, int]) -> bytes:
    """One record or marker for each: plain, sent in a transaction, commit or abort, of a producer."""
    data = b""
    for offset, (what, producer) in enumerate(steps):
        if what in ("commit", "abort"):
            batch = build_marker(Marker(producer, 0, 0, Outcome.COMMIT if what == "commit" else Outcome.ABORT), 0)
        else:
            attributes = TRANSACTIONAL_BIT if what == "send" else 0
            batch = build_batch([Record(value=b"v")], attributes=attributes, producer=(producer, 0, 0))
        stamp(memoryview(batch), offset, 0)
        data += batch
    return data


STEPS = log(
    ("plain", -1), ("send", 7), ("send", 8), ("plain", 7), ("abort", 7), ("send", 7), ("commit", 8), ("commit", 7),
)  # fmt: skip


def seen(data: bytes, aborted: list[tuple[int, int]], *, is_committed_only: bool = True) -> list[int]:
    return [one.base_offset for one in visible(batches_of(data), aborted, is_committed_only=is_committed_only)]


def test_what_was_aborted_is_not_seen() -> None:
    """But what the same producer does afterwards, or did without a transaction."""
    assert seen(STEPS, [(7, 1)]) == [0, 2, 3, 5]


def test_uncommitted_reads_see_all_but_markers() -> None:
    assert seen(STEPS, [], is_committed_only=False) == [0, 1, 2, 3, 5]


def test_a_transaction_that_began_before_what_was_fetched() -> None:
    data = log(("send", 7), ("abort", 7), ("send", 7), ("abort", 7))
    later = data[batches_of(data)[1].position :]
    assert seen(data, [(7, 0), (7, 2)]) == []
    assert seen(later, [(7, 0), (7, 2)]) == []
    assert seen(later, [(7, 0)]) == [2]
