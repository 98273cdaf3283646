"""Tests of orphans: an orphan must be refused, and is counted by the request where it was held."""

from __future__ import annotations

from compat_tests.applications.spark.orphans import Orphans
from compat_tests.faults.fault_plan import UNTIL_RELEASED_S, Fault
from compat_tests.faults.faulty_proxy import LateRequest
from spark_connectors.wire.api import SIZE_BYTES
from spark_connectors.wire.codes import ErrorCode
from spark_connectors.wire.messages.end_txn import END_TXN, EndTxnRequest
from spark_connectors.wire.messages.init_producer_id import INIT_PRODUCER_ID
from spark_connectors.wire.messages.offset_fetch import OFFSET_FETCH

REQUEST = EndTxnRequest(transactional_id="a", producer_id=1, producer_epoch=0, committed=True)


def answered(code: int) -> LateRequest:
    """An answer to EndTxn with that error code."""
    frame = bytes(END_TXN.encode(REQUEST, 1, "a")[SIZE_BYTES:])
    reply = b"\0\0\0\1\0" + bytes(4) + code.to_bytes(2, "big") + b"\0"
    return LateRequest(0.0, Fault.REQUEST_DELAYED, UNTIL_RELEASED_S, frame, reply)


def test_orphans_answered_with_a_fencing_error_count_as_fenced() -> None:
    orphans = Orphans()
    orphans.judge(END_TXN, [answered(ErrorCode.PRODUCER_FENCED)])
    orphans.judge(
        END_TXN, [answered(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answered(ErrorCode.INVALID_PRODUCER_EPOCH)]
    )
    orphans.judge(INIT_PRODUCER_ID, [answered(ErrorCode.NONE)])
    orphans.judge(OFFSET_FETCH, [answered(ErrorCode.NONE), answered(ErrorCode.PRODUCER_FENCED)])
    assert (orphans.fenced, orphans.anomalies) == (3, [])
    assert str(orphans) == "3 of 4 (2 of 2 at EndTxn, 0 of 1 at InitProducerId, 1 of 1 at OffsetFetch)"


def test_an_orphan_that_is_not_fenced_at_end_txn_is_an_anomaly() -> None:
    orphans = Orphans()
    orphans.judge(END_TXN, [answered(ErrorCode.NONE)])
    orphans.judge(END_TXN, [])
    assert orphans.anomalies == [
        "who was held at EndTxn was not fenced but answered ['0']",
        "who was held at EndTxn was not fenced but answered []",
    ]
    assert orphans.fenced == 0
