"""Kafka's protocol as far as connectors for Spark need it: messages, a connection, a cluster.

Executors have only the code that is sent to them. So this client is small, blocks, and imports Python's library alone.
`messages` has the format of each API; the rest of spark_connectors uses `cluster`.
"""

from spark_connectors.wire.cluster import FIRST_CONTACT_S, Cluster, PartitionResult, TopicPartition, by_topic
from spark_connectors.wire.codes import ErrorCode
from spark_connectors.wire.connection import Settings
from spark_connectors.wire.errors import (
    BrokerError,
    ConnectionLost,
    GaveUp,
    MalformedReply,
    ReplyTooLarge,
    Unsupported,
    WireError,
)
from spark_connectors.wire.messages.find_coordinator import Coordinated
from spark_connectors.wire.transport import Address

__all__ = [
    "FIRST_CONTACT_S",
    "Address",
    "BrokerError",
    "Cluster",
    "ConnectionLost",
    "Coordinated",
    "ErrorCode",
    "GaveUp",
    "MalformedReply",
    "PartitionResult",
    "ReplyTooLarge",
    "Settings",
    "TopicPartition",
    "Unsupported",
    "WireError",
    "by_topic",
]
