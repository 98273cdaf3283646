"""Options of the sink: those of Spark's kafka sink, by their names, and the location of staged files.

Settings of Kafka's producer are obeyed if they change the written bytes or a timeout. Settings that confirm fixed
behaviour are accepted (acks=all, idempotence); settings against it are refused.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_connectors.locations import resolved
from spark_connectors.options import (
    KAFKA_PREFIX,
    OptionRefused,
    Options,
    bootstrap_of,
    duration_s,
    positive_int32,
    settings_of,
    truth,
)
from spark_connectors.records.codecs import Codec
from spark_connectors.records.encode import BATCH_MAX_BYTES, RECORD_MAX_BYTES
from spark_connectors.wire import Address, Settings

TRANSACTION_TIMEOUT_MS: Final = 60_000  # transaction.timeout.ms of Kafka's producer
STAGING_AGE_S: Final = 7 * 86_400.0
RECORD_TOPIC: Final = "__consumer_offsets"  # it exists wherever groups commit offsets, and is never deleted
BATCH_MIN_BYTES: Final = 1024

# Settings of Java producers without effect here: of buffers, pools, metrics and pipelines, which do not exist.
HARMLESS: Final = frozenset(
    {
        "auto.include.jmx.reporter", "buffer.memory", "client.dns.lookup", "connections.max.idle.ms",
        "enable.metrics.push", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
        "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms", "transaction.two.phase.commit.enable",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SinkOptions:
    """Options of one writer."""

    bootstrap: tuple[Address, ...]
    settings: Settings
    topic: str | None  # None: a column has it
    codec: Codec
    batch_max_bytes: int
    record_max_bytes: int
    ignores_keys: bool
    transaction_timeout_ms: int
    staging: str
    staging_age_s: float
    record_topic: str
    is_missing_accepted: bool  # write later micro-batches even if no record shows that the one before was written


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Raises OptionRefused."""
    options = Options(raw)
    options.accept(["queryName", "includeHeaders"])  # the latter is an option of the source; headers are always written
    for name in ("acks", "enable.idempotence"):
        options.parsed(f"{KAFKA_PREFIX}{name}", _SO_ANYWAY[name], None)
    record_max_bytes = options.parsed(f"{KAFKA_PREFIX}max.request.size", positive_int32, RECORD_MAX_BYTES)
    batch_max_bytes = options.parsed(f"{KAFKA_PREFIX}batch.size", positive_int32, BATCH_MAX_BYTES)
    found = SinkOptions(
        bootstrap=bootstrap_of(options),
        settings=settings_of(options, HARMLESS, "delivery.timeout.ms"),
        topic=options.parsed("topic", _topic, None),
        codec=options.parsed(f"{KAFKA_PREFIX}compression.type", _codec, Codec.NONE),
        batch_max_bytes=max(min(batch_max_bytes, record_max_bytes), BATCH_MIN_BYTES),
        record_max_bytes=record_max_bytes,
        ignores_keys=options.parsed(f"{KAFKA_PREFIX}partitioner.ignore.keys", truth, False),
        transaction_timeout_ms=options.parsed(
            f"{KAFKA_PREFIX}transaction.timeout.ms", positive_int32, TRANSACTION_TIMEOUT_MS
        ),
        staging=_staging(options),
        staging_age_s=options.parsed("stagingRetention", _retention_s, STAGING_AGE_S),
        record_topic=options.text("recordTopic") or RECORD_TOPIC,
        is_missing_accepted=options.parsed("onMissingRecord", _on_missing, False),
    )
    options.finish()
    return found


def _staging(options: Options) -> str:
    checkpoint = options.text("checkpointLocation")
    named = options.parsed("stagingLocation", resolved, None)
    if named is not None:
        return named
    if checkpoint is None:  # one for each user: a directory of one user is not writable for others
        return resolved(f"{tempfile.gettempdir()}/kafkawire-{os.getuid()}")
    try:
        return resolved(checkpoint)
    except ValueError as error:
        raise OptionRefused(f"option stagingLocation is required, as beside the checkpoint {error}") from None


def _retention_s(text: str) -> float:
    """Parse an age. Refuse zero, because recently staged files of other queries would be deleted."""
    seconds = duration_s(text)
    if not seconds:
        raise ValueError(f"{text!r} keeps nothing for the driver to write")
    return seconds


def _topic(text: str) -> str | None:
    if not text:
        raise ValueError("it names no topic")
    return text


def _codec(text: str) -> Codec:
    if text.upper() not in Codec.__members__:
        raise ValueError(f"{text!r} is none of {', '.join(codec.name.lower() for codec in Codec)}")
    return Codec[text.upper()]


def _acks(text: str) -> None:
    if text not in ("all", "-1"):
        raise ValueError(f"{text} cannot be obeyed: a transaction needs acks=all")


def _idempotence(text: str) -> None:
    if not truth(text):
        raise ValueError(f"{text} cannot be obeyed: a transaction needs idempotence")


_SO_ANYWAY: Final = {"acks": _acks, "enable.idempotence": _idempotence}


def _on_missing(text: str) -> bool:
    if text.lower() not in ("fail", "accept"):
        raise ValueError(f"{text!r} is neither fail nor accept")
    return text.lower() == "accept"
