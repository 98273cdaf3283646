"""FindCoordinator: the coordinator of a group or of a transactional id (KIP-699)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int8, Int16, Int32, NullableText, Text, message


class Coordinated(IntEnum):
    """Types of coordinators: Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTIONAL_ID = 1


@message
class FindCoordinatorRequest:
    key_type: Int8
    coordinator_keys: tuple[Text, ...]


@message
class Coordinator:
    key: Text
    node_id: Int32
    host: Text
    port: Int32
    error_code: Int16
    error_message: NullableText


@message
class FindCoordinatorResponse:
    throttle_time_ms: Int32
    coordinators: tuple[Coordinator, ...]


FIND_COORDINATOR: Final = Api("FindCoordinator", 10, 4, FindCoordinatorRequest, FindCoordinatorResponse)
