"""The keys of topics, Kafka's and kafkawire's, each with the broker keys that are its defaults.

A row with a field of `engine.log_config.LogConfig` has effect; a row with None is not built yet, and may only have its
default (RULES G1). The broker keys are Kafka's ServerTopicConfigSynonyms, in its order; only the first of several can
be changed at run time (DynamicLogConfig). This module knows keys; `effective` knows their values.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from engine.log_config import EVERY_REPLICA, CleanupPolicy, CompressionType, FlushPolicy, ReplicaNames, TimestampType
from kafkawire.config.keys import Key, Source, TopicKey, Update
from kafkawire.config.values import (
    LONG_MAX,
    ConfigType,
    Reader,
    boolean,
    elements,
    integer,
    integer_or,
    long,
    member,
    members,
    no_zero,
    optional,
    ratio,
)

MIB: Final = 1024 * 1024
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
NO_LIMIT: Final = str(LONG_MAX)


class Default(NamedTuple):
    """A broker key with its own default. It has the reader of the topic key, unless its unit differs."""

    name: str
    value: str | None
    reader: Reader | None = None
    factor: int = 1


def _replica_names(value: str) -> ReplicaNames:
    """Parse a list of replicas, after Kafka's ThrottledReplicaListValidator."""
    found = elements(value)
    if found == ["*"]:
        return frozenset({EVERY_REPLICA})
    if not all(re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}", one) for one in found):
        raise ValueError("must be * or a list of replicas, as partition:broker,partition:broker,...")
    return frozenset((int(one.partition(":")[0]), int(one.partition(":")[2])) for one in found)


_replicas: Final = Reader(ConfigType.LIST, _replica_names)


def _row(name: str, reader: Reader, field: str | None, documentation: str, *defaults: Default) -> TopicKey:
    sources = []
    for place, one in enumerate(defaults):
        own = one.reader or (reader if one.value is not None else optional(reader))
        key_documentation = f"The default of topics that do not set {name}. {documentation}"
        if place:
            key_documentation = f"What {defaults[0].name} is when that is not set. {documentation}"
        update = Update.READ_ONLY if place else Update.CLUSTER_WIDE
        sources.append(Source(Key(one.name, own, one.value, key_documentation, update, field is not None), one.factor))
    return TopicKey(name, reader, field, documentation, tuple(sources))


def _alone(name: str, reader: Reader, default: str, documentation: str, field: str | None = None) -> TopicKey:
    """A topic key without a broker key as its default."""
    return TopicKey(name, reader, field, documentation, (), default)


_SEGMENTS: Final = (
    _row(
        "segment.bytes", integer(MIB), "segment_size_bytes",
        "The size at which a segment is closed and the next one is rolled. Retention and compaction work on whole "
        "segments.",
        Default("log.segment.bytes", "1073741824"),
    ),
    _row(
        "segment.ms", long(1), "segment_age_ms",
        "The time after its first record at which a segment is closed although it is not full, so that retention and "
        "compaction reach the old records of a quiet partition.",
        Default("log.roll.ms", None), Default("log.roll.hours", "168", integer(1), HOUR_MS),
    ),
    _row(
        "segment.jitter.ms", long(0), "segment_jitter_ms",
        "The maximum random time by which a segment is closed before segment.ms, so that many partitions do not roll "
        "at the same time.",
        Default("log.roll.jitter.ms", None), Default("log.roll.jitter.hours", "0", integer(0), HOUR_MS),
    ),
    _row(
        "segment.index.bytes", integer(4), "segment_index_size_bytes",
        "The size of a segment's offset index, at eight bytes an entry. A segment is closed when its index is full.",
        Default("log.index.size.max.bytes", "10485760"),
    ),
    _row(
        "index.interval.bytes", integer(0), None,
        "The approximate distance in bytes between two entries of the offset index.",
        Default("log.index.interval.bytes", "4096"),
    ),
    _row(
        "preallocate", boolean, "preallocate",
        "Whether the disk space of a new segment is allocated when the segment is created.",
        Default("log.preallocate", "false"),
    ),
    _row(
        "file.delete.delay.ms", long(0), "file_delete_delay_ms",
        "How long a file that is no longer part of the log stays on disk, renamed, before it is removed.",
        Default("log.segment.delete.delay.ms", "60000"),
    ),
)  # fmt: skip

_FLUSH: Final = (
    _row(
        "flush.policy", member(FlushPolicy), "flush_policy",
        "When an append is acknowledged with acks=1: after a sync to disk (sync), or after the write to the page "
        "cache (async), as in Apache Kafka. Internal topics always use sync.",
        Default("log.flush.policy", "sync"),
    ),
    _row(
        "flush.messages", long(1), "flush_messages",
        "The number of messages after which the log is synced to disk. Only with flush.policy=async.",
        Default("log.flush.interval.messages", NO_LIMIT),
    ),
    _row(
        "flush.ms", long(0), "flush_interval_ms",
        "The maximum time a message stays unsynced. Only with flush.policy=async.",
        Default("log.flush.interval.ms", None), Default("log.flush.scheduler.interval.ms", NO_LIMIT),
    ),
)  # fmt: skip

_MESSAGES: Final = (
    _row(
        "max.decompressed.message.bytes", integer(1), None,
        "The largest size of a record that is accepted, once it is decompressed.",
        Default("max.decompressed.message.bytes", "2147483639"),
    ),
    _row(
        "max.message.bytes", integer(0), "max_message_size_bytes",
        "The maximum size of a record batch, after compression if the producer compresses.",
        Default("message.max.bytes", "1048588"),
    ),
    _row(
        "message.timestamp.type", member(TimestampType), "timestamp_type",
        "The timestamp that a record keeps: the producer's (CreateTime), or the time of its append (LogAppendTime).",
        Default("log.message.timestamp.type", "CreateTime"),
    ),
    _row(
        "message.timestamp.before.max.ms", long(0), "timestamp_before_max_ms",
        "The maximum time by which a producer's timestamp may lie in the past. Other batches are refused.",
        Default("log.message.timestamp.before.max.ms", NO_LIMIT),
    ),
    _row(
        "message.timestamp.after.max.ms", long(0), "timestamp_after_max_ms",
        "The maximum time by which a producer's timestamp may lie in the future. Other batches are refused.",
        Default("log.message.timestamp.after.max.ms", "3600000"),
    ),
    _row(
        "compression.type", member(CompressionType), "compression_type",
        "The codec of stored batches. A batch with another codec is recompressed. With producer, each batch keeps "
        "its codec. Internal topics always use producer.",
        Default("compression.type", "producer"),
    ),
    _row(
        "compression.gzip.level", integer_or(-1, 1, 9), "gzip_level",
        "The gzip compression level, if compression.type is gzip: 1 to 9, or -1 for the default of gzip.",
        Default("compression.gzip.level", "-1"),
    ),
    _row(
        "compression.lz4.level", integer(1, 17), "lz4_level",
        "The lz4 compression level, if compression.type is lz4: 1 to 17. 9 is its fast mode.",
        Default("compression.lz4.level", "9"),
    ),
    _row(
        "compression.zstd.level", integer(-131_072, 22), "zstd_level",
        "The zstd compression level, if compression.type is zstd: up to 22. Negative levels are faster.",
        Default("compression.zstd.level", "3"),
    ),
    _row(
        "index.keys", boolean, "index_keys",
        "Whether the keys of records are indexed, so that the records of a key are found without a scan of the log.",
        Default("log.index.keys", "false"),
    ),
)  # fmt: skip

_RETENTION: Final = (
    _row(
        "cleanup.policy", members(CleanupPolicy), "cleanup_policy",
        "How old records are removed: delete removes segments by age and size, compact keeps the newest record of "
        "each key, both names together do both, and an empty list keeps all records.",
        Default("log.cleanup.policy", "delete"),
    ),
    _row(
        "retention.ms", long(-1), "retention_ms",
        "How long records are kept, by the largest timestamp of their segment. -1: for ever. Only with "
        "cleanup.policy=delete.",
        Default("log.retention.ms", None, optional(no_zero(long(-1)))),
        Default("log.retention.minutes", None, optional(no_zero(integer())), MINUTE_MS),
        Default("log.retention.hours", "168", no_zero(integer()), HOUR_MS),
    ),
    _row(
        "retention.bytes", long(), "retention_size_bytes",
        "The size of a partition above which its oldest segments are deleted. -1: no limit. Only with "
        "cleanup.policy=delete.",
        Default("log.retention.bytes", "-1"),
    ),
    _row(
        "delete.retention.ms", long(0), "delete_retention_ms",
        "How long a compacted topic keeps a tombstone. A consumer that starts at the beginning has so much time to "
        "see the deletion.",
        Default("log.cleaner.delete.retention.ms", "86400000"),
    ),
    _row(
        "min.compaction.lag.ms", long(0), "min_compaction_lag_ms",
        "The minimum age of a record before compaction may remove it.",
        Default("log.cleaner.min.compaction.lag.ms", "0"),
    ),
    _row(
        "max.compaction.lag.ms", long(1), "max_compaction_lag_ms",
        "The maximum age of a record before its log must be compacted.",
        Default("log.cleaner.max.compaction.lag.ms", NO_LIMIT),
    ),
    _row(
        "min.cleanable.dirty.ratio", ratio(is_zero_allowed=True), "min_cleanable_dirty_ratio",
        "The share of a log that must be new before it is compacted: between 0 and 1.",
        Default("log.cleaner.min.cleanable.ratio", "0.5"),
    ),
)  # fmt: skip

_REPLICATION: Final = (
    _row(
        "min.insync.replicas", integer(1), "min_insync_replicas",
        "The number of in-sync replicas that a produce request with acks=all needs. A number above that of the "
        "replicas counts as all of them.",
        Default("min.insync.replicas", "1"),
    ),
    _row(
        "unclean.leader.election.enable", boolean, "may_elect_unclean",
        "Whether a replica outside the ISR and the ELR may become leader when no other replica is available. This "
        "can lose acknowledged records.",
        Default("unclean.leader.election.enable", "false"),
    ),
    _alone(
        "leader.replication.throttled.replicas", _replicas, "",
        "The leaders whose sending to replicas outside the ISR is limited by leader.replication.throttled.rate, as "
        "partition:broker. * is all of them.", "leader_throttled_replicas",
    ),
    _alone(
        "follower.replication.throttled.replicas", _replicas, "",
        "The followers outside the ISR whose fetching is limited by follower.replication.throttled.rate, as "
        "partition:broker. * is all of them.", "follower_throttled_replicas",
    ),
)  # fmt: skip

_SHARE_GROUPS: Final = (
    _alone(
        "errors.deadletterqueue.group.enable", boolean, "false",
        "Whether share groups may write records to this topic that they cannot deliver.",
    ),
)  # fmt: skip

_TIERING: Final = (
    _alone(
        "remote.storage.enable", boolean, "false", "Whether closed segments are copied to remote storage.",
        "remote_storage",
    ),
    _alone(
        "remote.log.copy.disable", boolean, "false", "Whether remote storage is only read, and no segment is copied.",
        "remote_copy_disabled",
    ),
    _alone(
        "remote.log.delete.on.disable", boolean, "false",
        "Whether the topic's data in remote storage is deleted when remote.storage.enable becomes false.",
        "remote_delete_on_disable",
    ),
    _row(
        "remote.copy.lag.ms", long(-1), None,
        "How long a closed segment waits until it is copied to remote storage. 0: not at all.",
        Default("log.remote.copy.lag.ms", "0"),
    ),
    _row(
        "remote.copy.lag.bytes", long(-1), None,
        "The number of newer bytes of a partition that a closed segment waits for until it is copied to remote "
        "storage. -1: as many as stay on the broker.",
        Default("log.remote.copy.lag.bytes", "-1"),
    ),
    _row(
        "local.retention.ms", long(-2), "local_retention_ms",
        "How long a segment that is in remote storage stays on the broker, too. -2: as long as retention.ms.",
        Default("log.local.retention.ms", "-2"),
    ),
    _row(
        "local.retention.bytes", long(-2), "local_retention_size_bytes",
        "The bytes of a partition that are in remote storage and stay on the broker, too. -2: as many as "
        "retention.bytes.",
        Default("log.local.retention.bytes", "-2"),
    ),
)  # fmt: skip

TOPIC_KEYS: Final[dict[str, TopicKey]] = {
    one.name: one
    for one in sorted(
        (*_SEGMENTS, *_FLUSH, *_MESSAGES, *_RETENTION, *_REPLICATION, *_SHARE_GROUPS, *_TIERING),
        key=lambda row: row.name,
    )
}

LOG_KEYS: Final[dict[str, Key]] = {source.key.name: source.key for row in TOPIC_KEYS.values() for source in row.sources}

# Broker key -> keys of the same setting in all units, itself included; the first that is set precedes the others.
SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    source.key.name: tuple(one.key.name for one in row.sources) for row in TOPIC_KEYS.values() for source in row.sources
}
