"""EndTxn: commits a transaction, or aborts it (KIP-98)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Bool, Int16, Int32, Int64, Text, message


@message
class EndTxnRequest:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message
class EndTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16


END_TXN: Final = Api("EndTxn", 26, 3, EndTxnRequest, EndTxnResponse)
