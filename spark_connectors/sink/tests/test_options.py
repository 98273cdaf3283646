"""Options of Spark's kafka sink are parsed, and options that cannot be obeyed are refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_connectors.options import OptionRefused
from spark_connectors.records.codecs import Codec
from spark_connectors.sink.options import HARMLESS, SinkOptions, sink_options
from spark_connectors.wire import Address


def options(**given: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": "one:9092", **given})


def setting(name: str, value: str) -> SinkOptions:
    return options(**{f"kafka.{name}": value})


def test_defaults() -> None:
    found = options()
    assert found.bootstrap == (Address("one", 9092),)
    assert (found.topic, found.codec, found.ignores_keys) == (None, Codec.NONE, False)
    assert (found.batch_max_bytes, found.record_max_bytes) == (1_000_000, 1_048_576)
    assert (found.record_topic, found.is_missing_accepted) == ("__consumer_offsets", False)
    assert (found.transaction_timeout_ms, found.staging_age_s) == (60_000, 7 * 86_400)


def test_values(tmp_path: Path) -> None:
    found = options(TOPIC="t", stagingLocation=str(tmp_path), stagingRetention="2d", onMissingRecord="ACCEPT",
                    recordTopic="mine", queryName="q", includeHeaders="true", checkpointLocation="/x")  # fmt: skip
    assert (found.topic, found.staging, found.staging_age_s) == ("t", str(tmp_path), 2 * 86_400)
    assert (found.record_topic, found.is_missing_accepted) == ("mine", True)


@pytest.mark.parametrize("codec", Codec)
def test_codecs(codec: Codec) -> None:
    assert setting("compression.type", codec.name.lower()).codec is codec


def test_settings_of_the_producer() -> None:
    assert setting("transaction.timeout.ms", "5000").transaction_timeout_ms == 5000
    assert setting("delivery.timeout.ms", "5000").settings.patience_s == 5
    assert setting("client.id", "me").settings.client_id == "me"
    assert setting("partitioner.ignore.keys", "true").ignores_keys
    for name in HARMLESS:
        assert setting(name, "x") == options()
    for name, value in (("acks", "all"), ("acks", "-1"), ("enable.idempotence", "true")):
        assert setting(name, value) == options()


@pytest.mark.parametrize(("record", "batch", "expected"), [(5000, 900, 1024), (5000, 9000, 5000), (9000, 2000, 2000)])
def test_a_batch_is_not_larger_than_a_request(record: int, batch: int, expected: int) -> None:
    found = options(**{"kafka.max.request.size": str(record), "kafka.batch.size": str(batch)})
    assert (found.record_max_bytes, found.batch_max_bytes) == (record, expected)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kafka.acks", "1", "option kafka.acks: 1 cannot be obeyed"),
        ("kafka.enable.idempotence", "false", "option kafka.enable.idempotence: false cannot be obeyed"),
        ("kafka.compression.type", "brotli", "'brotli' is none of none, gzip, snappy, lz4, zstd"),
        ("kafka.compression.zstd.level", "3", "the levels are the defaults of Kafka's clients"),
        ("kafka.transactional.id", "mine", "the sink has one of its own"),
        ("kafka.key.serializer", "x", "keys are bytes or text"),
        ("kafka.value.serializer", "x", "values are bytes or text"),
        ("kafka.partitioner.class", "x", "a column partition says"),
        ("kafka.max.request.size", "0", "option kafka.max.request.size: 0 is below 1"),
        ("kafka.transaction.timeout.ms", "2147483648", "transaction.timeout.ms: 2147483648 is above 2147483647"),
        ("kafka.request.timeout.ms", "2147483648", "request.timeout.ms: 2147483648 is above 2147483647"),
        ("kafka.security.protocol", "SASL_SSL", "only PLAINTEXT and SSL are supported yet"),
        ("kafka.group.id", "g", "option kafka.group.id is not known"),
        ("topic", "", "option topic: it names no topic"),
        ("onMissingRecord", "guess", "'guess' is neither fail nor accept"),
        ("stagingLocation", "dbfs:/x", "option stagingLocation: dbfs:/x is no place for files: "),
        ("stagingRetention", "0d", "option stagingRetention: '0d' keeps nothing for the driver to write"),
        ("startingOffsets", "earliest", "option startingoffsets is not known"),
    ],
)
def test_unsupported_sink_option_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(OptionRefused, match=why):
        options(**{name: value})


def test_files_lie_beside_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(checkpointLocation=str(tmp_path)).staging == str(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert options().staging == str(tmp_path / "temporary" / f"kafkawire-{os.getuid()}")
    with pytest.raises(
        OptionRefused,
        match="option stagingLocation is required, as beside the checkpoint s3a://bucket/checkpoint is no",
    ):
        options(checkpointLocation="s3a://bucket/checkpoint")
    assert options(checkpointLocation="s3a://bucket/checkpoint", stagingLocation=str(tmp_path)).staging == str(tmp_path)
