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
        told = f"Of topics that do not set {name}. {documentation}"
        if place:
            told = f"What {defaults[0].name} is when that is not set. {documentation}"
        update = Update.READ_ONLY if place else Update.CLUSTER_WIDE
        sources.append(Source(Key(one.name, own, one.value, told, update, field is not None), one.factor))
    return TopicKey(name, reader, field, documentation, tuple(sources))


def _alone(name: str, reader: Reader, default: str, documentation: str, field: str | None = None) -> TopicKey:
    """A topic key without a broker key as its default."""
    return TopicKey(name, reader, field, documentation, (), default)


_SEGMENTS: Final = (
    _row(
        "segment.bytes", integer(MIB), "segment_size_bytes",
        "The size at which a segment is finished and the next one begun. Retention and compaction work on whole "
        "segments.",
        Default("log.segment.bytes", "1073741824"),
    ),
    _row(
        "segment.ms", long(1), "segment_age_ms",
        "The time after which a segment is finished although it is not full, counted from its first record, so that "
        "retention and compaction get at old records of a quiet partition.",
        Default("log.roll.ms", None), Default("log.roll.hours", "168", integer(1), HOUR_MS),
    ),
    _row(
        "segment.jitter.ms", long(0), "segment_jitter_ms",
        "By how much, at most and chosen by chance, a segment is finished earlier than segment.ms says, so that many "
        "partitions do not do it at once.",
        Default("log.roll.jitter.ms", None), Default("log.roll.jitter.hours", "0", integer(0), HOUR_MS),
    ),
    _row(
        "segment.index.bytes", integer(4), "segment_index_size_bytes",
        "The size of a segment's offset index, at eight bytes an entry: when it is full the segment is finished.",
        Default("log.index.size.max.bytes", "10485760"),
    ),
    _row(
        "index.interval.bytes", integer(0), None,
        "About how many bytes of records lie between two entries of the offset index.",
        Default("log.index.interval.bytes", "4096"),
    ),
    _row(
        "preallocate", boolean, "preallocate",
        "Whether a new segment gets its disk space at once.",
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
        "When an append counts, and is answered with acks=1: sync, once it is on the disk, or async, as in Apache "
        "Kafka, once the system has it. Internal topics are always sync.",
        Default("log.flush.policy", "sync"),
    ),
    _row(
        "flush.messages", long(1), "flush_messages",
        "With flush.policy=async: after how many messages the log is synced to disk.",
        Default("log.flush.interval.messages", NO_LIMIT),
    ),
    _row(
        "flush.ms", long(0), "flush_interval_ms",
        "With flush.policy=async: for how long a message may stay unsynced.",
        Default("log.flush.interval.ms", None), Default("log.flush.scheduler.interval.ms", NO_LIMIT),
    ),
)  # fmt: skip

_MESSAGES: Final = (
    _row(
        "max.message.bytes", integer(0), "max_message_size_bytes",
        "The largest batch of records, compressed if the producer compresses, that is taken.",
        Default("message.max.bytes", "1048588"),
    ),
    _row(
        "message.timestamp.type", member(TimestampType), "timestamp_type",
        "Which timestamp a record keeps: the producer's (CreateTime) or that of its arrival (LogAppendTime).",
        Default("log.message.timestamp.type", "CreateTime"),
    ),
    _row(
        "message.timestamp.before.max.ms", long(0), "timestamp_before_max_ms",
        "How far a producer's timestamp may lie in the past. Batches beyond are refused.",
        Default("log.message.timestamp.before.max.ms", NO_LIMIT),
    ),
    _row(
        "message.timestamp.after.max.ms", long(0), "timestamp_after_max_ms",
        "How far a producer's timestamp may lie in the future. Batches beyond are refused.",
        Default("log.message.timestamp.after.max.ms", "3600000"),
    ),
    _row(
        "compression.type", member(CompressionType), "compression_type",
        "The codec that batches are stored in: one that comes in another is compressed anew. With producer all stay as "
        "they came. Internal topics always have producer.",
        Default("compression.type", "producer"),
    ),
    _row(
        "compression.gzip.level", integer_or(-1, 1, 9), "gzip_level",
        "How hard gzip tries when compression.type is gzip: 1 to 9, -1 for its own choice.",
        Default("compression.gzip.level", "-1"),
    ),
    _row(
        "compression.lz4.level", integer(1, 17), "lz4_level",
        "How hard lz4 tries when compression.type is lz4: 1 to 17; 9 is its fast way.",
        Default("compression.lz4.level", "9"),
    ),
    _row(
        "compression.zstd.level", integer(-131_072, 22), "zstd_level",
        "How hard zstd tries when compression.type is zstd: up to 22, and below zero for speed.",
        Default("compression.zstd.level", "3"),
    ),
    _row(
        "index.keys", boolean, "index_keys",
        "Whether the keys of records are indexed, so that the records of a key are found without reading the log.",
        Default("log.index.keys", "false"),
    ),
)  # fmt: skip

_RETENTION: Final = (
    _row(
        "cleanup.policy", members(CleanupPolicy), "cleanup_policy",
        "What becomes of old records: delete removes segments by age and size, compact keeps the newest record of "
        "each key, both do both, none keeps everything.",
        Default("log.cleanup.policy", "delete"),
    ),
    _row(
        "retention.ms", long(-1), "retention_ms",
        "With cleanup.policy=delete: how long records are kept, by the largest timestamp of their segment; -1 is for "
        "ever.",
        Default("log.retention.ms", None, optional(no_zero(long(-1)))),
        Default("log.retention.minutes", None, optional(no_zero(integer())), MINUTE_MS),
        Default("log.retention.hours", "168", no_zero(integer()), HOUR_MS),
    ),
    _row(
        "retention.bytes", long(), "retention_size_bytes",
        "With cleanup.policy=delete: the size a partition may have before its oldest segments are deleted; -1 is any.",
        Default("log.retention.bytes", "-1"),
    ),
    _row(
        "delete.retention.ms", long(0), "delete_retention_ms",
        "How long a compacted topic keeps the record without a value that deletes a key: the time a reader that "
        "began at the start has to see it.",
        Default("log.cleaner.delete.retention.ms", "86400000"),
    ),
    _row(
        "min.compaction.lag.ms", long(0), "min_compaction_lag_ms",
        "How long a record of a compacted topic is safe from compaction.",
        Default("log.cleaner.min.compaction.lag.ms", "0"),
    ),
    _row(
        "max.compaction.lag.ms", long(1), "max_compaction_lag_ms",
        "How long a record of a compacted topic may stay before it must be looked at by compaction.",
        Default("log.cleaner.max.compaction.lag.ms", NO_LIMIT),
    ),
    _row(
        "min.cleanable.dirty.ratio", ratio(is_zero_allowed=True), "min_cleanable_dirty_ratio",
        "How much of a compacted log must be new before compaction is worth its work: a part between 0 and 1.",
        Default("log.cleaner.min.cleanable.ratio", "0.5"),
    ),
)  # fmt: skip

_REPLICATION: Final = (
    _row(
        "min.insync.replicas", integer(1), "min_insync_replicas",
        "How many replicas must have a record before a producer with acks=all is told that it is written. More than "
        "there are replicas counts as all of them.",
        Default("min.insync.replicas", "1"),
    ),
    _row(
        "unclean.leader.election.enable", boolean, "may_elect_unclean",
        "Whether a replica that lacks records may become leader when no other is left, and the records be lost.",
        Default("unclean.leader.election.enable", "false"),
    ),
    _alone(
        "leader.replication.throttled.replicas", _replicas, "",
        "Of which leaders, as partition:broker, what replicas not in sync fetch counts and is limited by "
        "leader.replication.throttled.rate; * is all of them.", "leader_throttled_replicas",
    ),
    _alone(
        "follower.replication.throttled.replicas", _replicas, "",
        "Of which followers not in sync, as partition:broker, fetching is limited by "
        "follower.replication.throttled.rate; * is all of them.", "follower_throttled_replicas",
    ),
)  # fmt: skip

_TIERING: Final = (
    _alone(
        "remote.storage.enable", boolean, "false", "Whether finished segments are copied to remote storage.",
        "remote_storage",
    ),
    _alone(
        "remote.log.copy.disable", boolean, "false", "Whether remote storage is only read, with no new copies.",
        "remote_copy_disabled",
    ),
    _alone(
        "remote.log.delete.on.disable", boolean, "false",
        "Whether what is in remote storage is deleted when remote.storage.enable becomes false.",
        "remote_delete_on_disable",
    ),
    _row(
        "local.retention.ms", long(-2), "local_retention_ms",
        "How long segments that are in remote storage also stay on the broker; -2 is as long as retention.ms says.",
        Default("log.local.retention.ms", "-2"),
    ),
    _row(
        "local.retention.bytes", long(-2), "local_retention_size_bytes",
        "How much of a partition that is in remote storage also stays on the broker; -2 is as retention.bytes says.",
        Default("log.local.retention.bytes", "-2"),
    ),
)  # fmt: skip

TOPIC_KEYS: Final[dict[str, TopicKey]] = {
    one.name: one
    for one in sorted(
        (*_SEGMENTS, *_FLUSH, *_MESSAGES, *_RETENTION, *_REPLICATION, *_TIERING), key=lambda row: row.name
    )
}

LOG_KEYS: Final[dict[str, Key]] = {source.key.name: source.key for row in TOPIC_KEYS.values() for source in row.sources}

# Broker key -> keys of the same setting in all units, itself included; the first that is set precedes the others.
SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    source.key.name: tuple(one.key.name for one in row.sources) for row in TOPIC_KEYS.values() for source in row.sources
}
