"""Markers for transactions that a producer snapshot shows open where a restored log ends."""

import pytest

from engine.api import NO_EPOCH, NO_OFFSET, Marker, Outcome, TopicIdPartition
from engine.batches.batch import parse_header
from engine.batches.markers import parse_marker
from engine.log_dirs.restored_transactions import lost_markers, marker_batches
from engine.logs.producers.snapshot import Snapshot, encode_snapshot
from engine.logs.producers.state import EPOCH_MAX, ProducedBatch, Producer, ProducerTable
from engine.logs.segments.footer import FooterDamaged, Tally, encode

END = 10
PARTITION = TopicIdPartition(bytes(16), "t", 0)


def producer(epoch: int, transaction_from: int, coordinator_epoch: int = NO_EPOCH) -> Producer:
    return Producer(epoch, (ProducedBatch(0, 8, 0, 1000),), 8, 1000, coordinator_epoch, transaction_from)


def snapshot(**producers: Producer) -> bytes:
    table = ProducerTable((int(name.removeprefix("p")), one) for name, one in producers.items())
    return encode_snapshot(Snapshot(END, table, END))


def footer(*aborted: tuple[int, int, int]) -> bytes:
    return encode(Tally().footer(PARTITION, 5, 100, aborted=aborted))


def test_the_footer_tells_the_outcome_of_each_open_transaction() -> None:
    producers = snapshot(p1=producer(3, 7, 4), p2=producer(0, 6), p3=producer(1, NO_OFFSET))
    # An aborted transaction of producer 2 that was over before says nothing of its open one.
    assert lost_markers(producers, END, footer((2, 2, 5), (1, 7, 14))) == [
        Marker(2, 1, 0, Outcome.COMMIT),
        Marker(1, 4, 4, Outcome.ABORT),
    ]


def test_without_open_transactions_no_footer_is_needed() -> None:
    assert lost_markers(snapshot(p3=producer(1, NO_OFFSET)), END, b"") == []


def test_a_damaged_footer_is_told() -> None:
    with pytest.raises(FooterDamaged):
        lost_markers(snapshot(p1=producer(3, 7)), END, footer()[:-3])


def test_the_last_epoch_of_a_producer_is_not_exceeded() -> None:
    [marker] = lost_markers(snapshot(p1=producer(EPOCH_MAX, 7)), END, footer())
    assert marker.producer_epoch == EPOCH_MAX


def test_batches_of_markers_have_an_offset_each() -> None:
    markers = [Marker(1, 4, 4, Outcome.ABORT), Marker(2, 1, 0, Outcome.COMMIT)]
    data, found = marker_batches(markers, END, leader_epoch=1003, now_ms=7), []
    while data:
        header = parse_header(data)
        found.append((header.base_offset, header.leader_epoch, parse_marker(header, data[: header.size_bytes])))
        data = data[header.size_bytes :]
    assert found == [(END, 1003, markers[0]), (END + 1, 1003, markers[1])]
