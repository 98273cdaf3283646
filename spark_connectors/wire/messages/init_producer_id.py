"""InitProducerId: a producer id for a transactional id, with a new epoch that fences older ones (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int16, Int32, Int64, NullableText, message


@message
class InitProducerIdRequest:
    transactional_id: NullableText
    transaction_timeout_ms: Int32
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


@message
class InitProducerIdResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64
    producer_epoch: Int16


INIT_PRODUCER_ID: Final = Api("InitProducerId", 22, 4, InitProducerIdRequest, InitProducerIdResponse)
