"""Broker keys of Kafka without an effect here: keys that are not built yet, and keys that have no meaning here.

A key moves from the first tables to `broker_config` in the change that enforces it. Defaults of topics are in
`topic_config`. Keys that promise security or a limit are here, so that operators do not rely on them. (Limits of groups
and storage that are not served are left out: they cannot be exceeded.)
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kafkawire.config.keys import Key, Update
from kafkawire.config.values import INT_MAX, LONG_MAX, boolean, class_name, integer, long, password, text, words

_unbuilt = partial(Key, is_built=False)
_cluster_wide = partial(_unbuilt, update=Update.CLUSTER_WIDE)
_per_broker = partial(_unbuilt, update=Update.PER_BROKER)

_SECURITY_KEYS: Final = (
    _unbuilt(
        "authorizer.class.name", text, "",
        "The class that decides whether a client may do an operation. Empty: every client may do everything.",
    ),
    _unbuilt(
        "security.inter.broker.protocol", text, "PLAINTEXT",
        "The security protocol between brokers, if inter.broker.listener.name is not set.",
    ),
    _unbuilt("security.providers", text, None, "Classes that provide the algorithms of TLS and SASL."),
    _per_broker(
        "principal.builder.class", class_name,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "The class that builds a client's principal.",
    ),
    _unbuilt(
        "connections.max.reauth.ms", long(), "0",
        "How long a connection may be used until its client must authenticate again. 0: for ever.",
    ),
    _unbuilt(
        "connection.failed.authentication.delay.ms", integer(0), "100",
        "The delay before a connection is closed whose authentication failed.",
    ),
    _unbuilt("delegation.token.secret.key", password, None, "The secret that signs delegation tokens."),
    _unbuilt(
        "delegation.token.max.lifetime.ms", long(1), "604800000",
        "The time after which a delegation token cannot be renewed.",
    ),
    _unbuilt(
        "delegation.token.expiry.time.ms", long(1), "86400000",
        "The time after which a delegation token must be renewed.",
    ),
    _unbuilt(
        "delegation.token.expiry.check.interval.ms", long(1), "3600000",
        "The interval between two checks for expired delegation tokens.",
    ),
    _cluster_wide("config.providers", words, "", "The providers that resolve values which name an external source."),
)  # fmt: skip

_POLICY_KEYS: Final = (
    _unbuilt("create.topic.policy.class.name", class_name, None, "The class that decides which topics may be created."),
    _unbuilt("alter.config.policy.class.name", class_name, None,
        "The class that decides which configs may be changed."),
    _unbuilt("client.quota.callback.class", class_name, None, "The class that decides the quota of a client."),
    *(
        key
        for prefix, measured in {
            "quota": "clients' traffic",
            "controller.quota": "changes of topics",
            "alter.log.dirs.replication.quota": "traffic between log dirs",
        }.items()
        for key in (
            _unbuilt(f"{prefix}.window.num", integer(1), "11", f"The number of samples of {measured}."),
            _unbuilt(f"{prefix}.window.size.seconds", integer(1), "1", f"The length of a sample of {measured}."),
        )
    ),
    _per_broker("cordoned.log.dirs", words, "", "The log dirs that get no new partitions. * is all of them."),
)  # fmt: skip

# A stock server.properties may have Kafka's default. Any other value would be a promise that is not kept.
_KEYS: Final = (
    *_SECURITY_KEYS,
    *_POLICY_KEYS,
    _cluster_wide(
        "max.connection.creation.rate", integer(0), str(INT_MAX),
        "The maximum number of new connections in a second.",
    ),
    _cluster_wide(
        "max.connections.per.ip.overrides", text, "",
        "Addresses with a limit of their own in place of max.connections.per.ip, as host:limit,...",
    ),
    _unbuilt(
        "group.coordinator.rebalance.protocols", words, "classic",
        "The rebalance protocols that consumer groups may use.",
    ),
    _unbuilt(
        "offsets.topic.compression.codec", integer(), "0",
        "The codec of stored committed offsets, by number. 0: none.",
    ),
    _unbuilt(
        "transaction.two.phase.commit.enable", boolean, "false",
        "Whether producers may ask for transactions without a timeout, for a two-phase commit.",
    ),
)  # fmt: skip

UNBUILT_KEYS: Final[dict[str, Key]] = {key.name: key for key in _KEYS}

_NO_LIMIT: Final = str(LONG_MAX)

# Keys of Kafka's authorizer, and keys that exist only at run time: Kafka does not describe them.
UNLISTED_KEYS: Final[dict[str, Key]] = {
    key.name: key
    for key in (
        _unbuilt("super.users", text, "", "The principals that may do everything, regardless of ACLs."),
        _unbuilt(
            "allow.everyone.if.no.acl.found", boolean, "false",
            "Whether every client may use a resource that has no ACL.",
        ),
        _unbuilt(
            "replica.alter.log.dirs.io.max.bytes.per.second", long(1), _NO_LIMIT,
            "The bytes of partitions that are moved between log dirs in a second.",
        ),
    )
}  # fmt: skip

_NO_SASL: Final = "SASL is not supported yet"

# Prefixes of names that are refused with any value, and the reasons. Keys of the tables above are excepted.
REFUSED_KEYS: Final[dict[str, str]] = {
    "authorizer.": "authorizers are not supported yet",
    "client.quota.callback.": "quotas are not supported yet",
    "config.providers.": "config providers are not supported yet",
    "delegation.token.": "delegation tokens are not supported yet",
    "password.encoder.": "passwords in the cluster's metadata are not supported",
    "principal.builder.": "principal builders are not supported yet",
    "quota.": "quotas are not supported yet",
    "sasl.": _NO_SASL,
    "security.": "providers of Java are not used",
    "ssl.": "TLS has no such key",
}

# Keys of earlier versions: the value that means today's behaviour, and the advice for another value.
RETIRED_KEYS: Final[dict[str, tuple[str, str, str]]] = {
    "metadata.loss.acks1": ("accept", "acks=1 is taken as by Apache Kafka", "have producers send with acks=all"),
}

_NO_QUORUM: Final = "this broker needs no KRaft quorum"
_ONE_LOOP: Final = "one event loop serves all requests"
_NO_SHARE_GROUPS: Final = "share groups are not supported yet"

HARMLESS_KEYS: Final[dict[str, str]] = {
    "controller.quorum.bootstrap.servers": _NO_QUORUM,
    "controller.quorum.voters": _NO_QUORUM,
    "process.roles": "one process is broker and controller",
    "group.coordinator.append.linger.ms": "commits that come while others are on their way to the disk share a batch",
    "group.coordinator.threads": _ONE_LOOP,
    "offsets.load.buffer.size": "the log is read a MiB at a time",
    "background.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": "recovery runs on the I/O workers",
    "leader.imbalance.per.broker.percentage": "leaders go back however few have moved",
    "num.replica.fetchers": "there is one for each leader and log dir",
    "queued.max.requests": "requests in flight are bounded per connection",
    "share.coordinator.state.topic.min.isr": _NO_SHARE_GROUPS,
    "share.coordinator.state.topic.replication.factor": _NO_SHARE_GROUPS,
    "socket.receive.buffer.bytes": "the system sizes socket buffers",
    "socket.send.buffer.bytes": "the system sizes socket buffers",
    "transaction.state.log.load.buffer.size": "the log is read a MiB at a time",
    "log4j.configuration": "logs go to standard error",
}
