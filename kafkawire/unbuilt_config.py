"""Broker keys of Kafka that this broker knows but does not act on yet, with the only value each may have.

A key leaves this table for `config` in the change that enforces it.
"""

from typing import Final

LONG_MAX: Final = str(2**63 - 1)

# Kafka's default is what a stock server.properties may say; anything else would be a promise not kept.
UNBUILT_KEYS: Final[dict[str, str]] = {
    "authorizer.class.name": "",
    "compression.type": "producer",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    "security.inter.broker.protocol": "PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.cleanup.policy": "delete",
    "log.cleaner.enable": "true",
    "log.index.interval.bytes": "4096",
    "log.retention.bytes": "-1",
    "log.retention.check.interval.ms": "300000",
    "log.retention.hours": "168",
    "max.connection.creation.rate": str(2**31 - 1),
    "max.connections.per.ip.overrides": "",
    "group.coordinator.rebalance.protocols": "classic",
    "offsets.commit.timeout.ms": "5000",
    "offsets.topic.compression.codec": "0",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "unclean.leader.election.enable": "false",
    "zookeeper.connect": "",
}

HARMLESS_KEYS: Final[dict[str, str]] = {
    "controller.listener.names": "this broker needs no KRaft quorum",
    "controller.quorum.bootstrap.servers": "this broker needs no KRaft quorum",
    "controller.quorum.voters": "this broker needs no KRaft quorum",
    "process.roles": "one process is broker and controller",
    "group.coordinator.append.linger.ms": "commits that come while others are on their way to the disk share a batch",
    "group.coordinator.threads": "one event loop serves all requests",
    "offsets.load.buffer.size": "the log is read a MiB at a time",
    "num.io.threads": "one event loop serves all requests",
    "num.network.threads": "one event loop serves all requests",
    "num.recovery.threads.per.data.dir": "recovery runs on the I/O workers",
    "queued.max.requests": "requests in flight are bounded per connection",
    "socket.receive.buffer.bytes": "the system sizes socket buffers",
    "socket.send.buffer.bytes": "the system sizes socket buffers",
    "log4j.configuration": "logs go to standard error",
}
