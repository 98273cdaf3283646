"""AddOffsetsToTxn: adds a group to a transaction, before offsets of the group are committed in it (KIP-98)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int16, Int32, Int64, Text, message


@message
class AddOffsetsToTxnRequest:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    group_id: Text


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16


ADD_OFFSETS_TO_TXN: Final = Api("AddOffsetsToTxn", 25, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
