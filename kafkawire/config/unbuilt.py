"""Broker keys of Kafka that this broker knows but does not act on: those not built yet, and those without effect here.

A key leaves the first table for `config` in the change that enforces it. Those that are defaults of topics are in
`topic_config`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kafkawire.config.keys import Key, Update
from kafkawire.config.values import INT_MAX, boolean, integer, text, words

_unbuilt = partial(Key, is_built=False)
_cluster_wide = partial(_unbuilt, update=Update.CLUSTER_WIDE)

# Kafka's default is what a stock server.properties may say; anything else would be a promise not kept.
_KEYS: Final = (
    _unbuilt(
        "authorizer.class.name", text, "",
        "Who decides what a client may do. Without one anybody may do anything.",
    ),
    _unbuilt(
        "security.inter.broker.protocol", text, "PLAINTEXT",
        "How brokers talk to each other where inter.broker.listener.name does not say it.",
    ),
    _unbuilt("zookeeper.connect", text, "", "The ZooKeeper ensemble that coordinates a cluster."),
    _unbuilt(
        "remote.log.storage.system.enable", boolean, "false",
        "Whether topics may have finished segments in remote storage.",
    ),
    _cluster_wide(
        "max.connection.creation.rate", integer(0), str(INT_MAX),
        "How many connections are accepted in a second.",
    ),
    _cluster_wide(
        "max.connections.per.ip.overrides", text, "",
        "Addresses with a limit of their own in place of max.connections.per.ip, as host:limit,...",
    ),
    _unbuilt(
        "group.coordinator.rebalance.protocols", words, "classic",
        "The protocols in which groups of consumers may come to an agreement.",
    ),
    _unbuilt(
        "offsets.commit.timeout.ms", integer(1), "5000",
        "How long a commit of offsets waits until it is durable.",
    ),
    _unbuilt(
        "offsets.topic.compression.codec", integer(), "0",
        "The codec, by its number, in which committed offsets are stored; 0 is none.",
    ),
    _unbuilt(
        "transaction.max.timeout.ms", integer(1), "900000",
        "The longest time a producer may give a transaction.",
    ),
    _unbuilt(
        "transactional.id.expiration.ms", integer(1), "604800000",
        "How long a transactional id that nobody uses is remembered.",
    ),
)  # fmt: skip

UNBUILT_KEYS: Final[dict[str, Key]] = {key.name: key for key in _KEYS}

_NO_QUORUM: Final = "this broker needs no KRaft quorum"
_ONE_LOOP: Final = "one event loop serves all requests"
_ONE_BROKER: Final = "one broker has no traffic between brokers"
_NO_TRANSACTIONS: Final = "transactions are not supported yet"
_NO_SHARE_GROUPS: Final = "share groups are not supported yet"

HARMLESS_KEYS: Final[dict[str, str]] = {
    "controller.quorum.bootstrap.servers": _NO_QUORUM,
    "controller.quorum.voters": _NO_QUORUM,
    "process.roles": "one process is broker and controller",
    "inter.broker.listener.name": _ONE_BROKER,
    "group.coordinator.append.linger.ms": "commits that come while others are on their way to the disk share a batch",
    "group.coordinator.threads": _ONE_LOOP,
    "offsets.load.buffer.size": "the log is read a MiB at a time",
    "background.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": "recovery runs on the I/O workers",
    "num.replica.fetchers": _ONE_BROKER,
    "queued.max.requests": "requests in flight are bounded per connection",
    "share.coordinator.state.topic.min.isr": _NO_SHARE_GROUPS,
    "share.coordinator.state.topic.replication.factor": _NO_SHARE_GROUPS,
    "socket.receive.buffer.bytes": "the system sizes socket buffers",
    "socket.send.buffer.bytes": "the system sizes socket buffers",
    "transaction.state.log.min.isr": _NO_TRANSACTIONS,
    "transaction.state.log.num.partitions": _NO_TRANSACTIONS,
    "transaction.state.log.replication.factor": _NO_TRANSACTIONS,
    "log4j.configuration": "logs go to standard error",
}
