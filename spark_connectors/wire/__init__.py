"""Kafka's protocol as far as connectors for Spark need it: messages, a connection, a cluster.

Executors have nothing but what is shipped to them, so this is small, blocks, and imports Python's library alone. What a
message looks like is said in `messages`, one API a module; `cluster` is what the rest of spark_connectors uses.
"""

from spark_connectors.wire.cluster import Cluster, Outcome, TopicPartition, by_topic
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
    "Address",
    "BrokerError",
    "Cluster",
    "ConnectionLost",
    "Coordinated",
    "ErrorCode",
    "GaveUp",
    "MalformedReply",
    "Outcome",
    "ReplyTooLarge",
    "Settings",
    "TopicPartition",
    "Unsupported",
    "WireError",
    "by_topic",
]
