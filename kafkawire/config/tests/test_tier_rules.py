"""Configs of a topic that the remote tier allows: Kafka's answers."""

from __future__ import annotations

import pytest

from coordinator.errors import InvalidConfig
from kafkawire.config.broker_config import ConfigError, load
from kafkawire.config.effective import EffectiveConfigs
from kafkawire.config.tier_config import location_for_readers

TIERED = {"remote.storage.enable": "true"}
WITH_TIER = {"remote.log.storage.system.enable": "true", "tier.store": "file:///tier"}


def effective(**more: str) -> EffectiveConfigs:
    return EffectiveConfigs(load({**WITH_TIER, **{name.replace("_", "."): value for name, value in more.items()}})[0])


@pytest.mark.parametrize(
    "configs",
    [
        TIERED,
        {**TIERED, "local.retention.ms": "-2", "local.retention.bytes": "-2"},
        {**TIERED, "retention.ms": "1000", "local.retention.ms": "1000"},
        {**TIERED, "retention.ms": "-1", "local.retention.ms": "-1"},
        {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "999"},
        {**TIERED, "local.retention.bytes": "1000"},
        {**TIERED, "remote.log.copy.disable": "true"},
        {**TIERED, "remote.log.copy.disable": "true", "retention.ms": "9", "local.retention.ms": "9"},
        {**TIERED, "cleanup.policy": ""},
        {"local.retention.ms": "-1", "retention.ms": "9"},  # the topic is not in the tier
    ],
)
def test_valid_tier_configs_of_a_topic_are_accepted(configs: dict[str, str]) -> None:
    effective().validate("t", configs)


@pytest.mark.parametrize(
    ("configs", "complaint"),
    [
        ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        ({"cleanup.policy": "compact,delete"}, "only supports topics with cleanup.policy=delete"),
        (
            {"retention.ms": "9", "local.retention.ms": "10"},
            "must not be more than retention.ms property value: 9",
        ),
        ({"local.retention.ms": "-1"}, "Value must not be -1 as retention.ms value is set as 604800000"),
        ({"retention.bytes": "9", "local.retention.bytes": "10"}, "not be more than retention.bytes property value: 9"),
        ({"retention.bytes": "9", "local.retention.bytes": "-1"}, "not be -1 as retention.bytes value is set as 9"),
        (
            {"remote.log.copy.disable": "true", "local.retention.ms": "9"},
            "`local.retention.ms` and `retention.ms`",
        ),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "9"}, "`retention.bytes` must be set to the id"),
    ],
)
def test_invalid_tier_configs_of_a_topic_are_refused(configs: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        effective().validate("t", {**TIERED, **configs})


def test_a_topic_stays_in_the_tier() -> None:
    with pytest.raises(InvalidConfig, match="invalid to disable remote storage without deleting remote data"):
        effective().validate("t", {"remote.storage.enable": "false"}, TIERED)
    with pytest.raises(InvalidConfig, match="invalid to disable"):
        effective().validate("t", {}, TIERED)
    effective().validate("t", TIERED, {})
    effective().validate("t", {}, {})


@pytest.mark.parametrize(
    ("configs", "complaint"),
    [
        ({"tier.store": ""}, "^remote.log.storage.system.enable=true: tier.store has to say"),
        ({"remote.log.storage.system.enable": "false"}, "^tier.store: it takes remote.log.storage.system.enable=true"),
        ({"tier.s3.access.key": "me"}, "only one of them is set"),
        ({"tier.s3.secret.key": "word"}, "only one of them is set"),
        ({"tier.store": "/tier"}, "must be file:///directory or s3://bucket/prefix"),
        ({"tier.store": "file://tier"}, "must be file:///directory, with an absolute path"),
        ({"tier.store": "s3://Bucket"}, "must be file:///directory or s3://bucket/prefix"),
        ({"tier.store": "s3://b"}, "must be file:///directory or s3://bucket/prefix"),
    ],
)
def test_an_invalid_tier_configuration_refuses_the_start(configs: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        load({**WITH_TIER, **configs})
    assert "word" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///tier", (False, "/tier", "")),
        ("file:///tier/of/it/", (False, "/tier/of/it", "")),
        ("s3://bucket", (True, "bucket", "")),
        ("s3://bucket/", (True, "bucket", "")),
        ("s3://my.bucket-1/lake/raw/", (True, "my.bucket-1", "lake/raw/")),
    ],
)
def test_where_a_store_is(url: str, expected: tuple[bool, str, str]) -> None:
    assert load({**WITH_TIER, "tier.store": url})[0].tier_store == expected


@pytest.mark.parametrize(
    ("keys", "location"),
    [
        ({"tier.store": "file:///tier"}, "file:///tier"),
        ({"tier.store": "s3://bucket/a"}, "s3://bucket/a"),
        (
            {"tier.store": "s3://bucket/a", "tier.s3.endpoint": "http://127.0.0.1:9000", "tier.s3.region": "eu-1"},
            "s3://bucket/a?endpoint_override=127.0.0.1%3A9000&scheme=http&region=eu-1",
        ),
    ],
)
def test_the_location_for_readers_has_the_server_and_no_credentials(keys: dict[str, str], location: str) -> None:
    secrets = {"tier.s3.access.key": "key", "tier.s3.secret.key": "secret"}
    assert location_for_readers(load({**WITH_TIER, **keys, **secrets})[0]) == location
