"""Tests of the counts and lines about late requests."""

from __future__ import annotations

from compat_tests.faults.fault_plan import Fault
from compat_tests.faults.faulty_proxy import LateRequest
from compat_tests.faults.late_replies import answers, line_of
from compat_tests.harness.batches import Batch, Record
from compat_tests.harness.kio_codec import encode_request

END = encode_request("end_txn", 4, {"transactional_id": "t", "producer_id": 7, "producer_epoch": 2, "committed": True})
FENCED = b"\0\0\0\1" + b"\0" + b"\0\0\0\0" + b"\0\x5a" + b"\0"  # as in version 3 and later


def late_request(frame: bytes, reply: bytes | None) -> LateRequest:
    return LateRequest(3661.25, Fault.LATE, 0.5, frame, reply)


def test_answers_are_counted() -> None:
    requests = [late_request(END, FENCED), late_request(END, FENCED), late_request(END, None)]
    assert answers(requests) == "end_txn v4 90 x 2, end_txn v4 closed x 1"


def test_the_line_of_a_late_request_has_its_time_delay_and_answer() -> None:
    line = line_of(late_request(END, FENCED))
    assert line.startswith("01:01:01.250 end_txn v4 late by 0.500 s, answered 90: {'transactional_id': 't', ")


def test_the_line_of_a_batch_names_its_producer_epoch_and_sequence() -> None:
    batch = Batch(attributes=0x10, producer_id=7, producer_epoch=2, base_sequence=5, records=(Record(value=b"v"),))
    fields = {
        "transactional_id": "t",
        "acks": -1,
        "topic_data": [{"name": "output", "partition_data": [{"index": 0, "records": batch.encode()}]}],
    }
    line = line_of(late_request(encode_request("produce", 9, fields), None))
    assert "1 records of 7 in epoch 2 from sequence 5" in line
