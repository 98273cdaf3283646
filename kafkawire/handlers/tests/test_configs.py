"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: one test per answer and per refusal."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.api import CLUSTER_DEFAULT, BrokerInfo
from kafkawire.messages import alter_configs, incremental_alter_configs
from kafkawire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkawire.messages.list_config_resources import ListConfigResourcesRequest
from kafkawire.tests.harness import NODE_ID, Broker, open_handlers

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LIST = "cleanup.policy"


def resource(kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)


async def describe(broker: Broker, *resources: DescribeConfigsResource, version: int = 4, **fields: bool) -> list[Any]:
    response = await broker.ask(DescribeConfigsRequest(resources=list(resources), **fields), version)
    rows: list[Any] = response.results
    return rows


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_configs_with_their_sources(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", max_message_bytes="100")
        [row] = await describe(broker, resource(TOPIC, "t"), version=version)
        assert (row.error_code, row.resource_type, row.resource_name) == (0, TOPIC, "t")
        shown = {one.name: (one.value, one.config_source, one.read_only, one.is_sensitive) for one in row.configs}
        assert shown == {"retention.ms": ("604800000", 5, False, False), "max.message.bytes": ("100", 1, False, False)}
        assert [one.synonyms for one in row.configs] == [[], []]
        assert [one.config_type for one in row.configs] == ([5, 0] if version >= 3 else [0, 0])


async def test_describe_configs_returns_synonyms_and_documentation_on_request() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        [row] = await describe(broker, resource(TOPIC, "t"), include_synonyms=True, include_documentation=True)
        [entry] = row.configs
        assert [(one.name, one.value, one.source) for one in entry.synonyms] == [("log.retention.hours", "168", 5)]
        assert entry.documentation == "How long records are kept."
        [row] = await describe(broker, resource(TOPIC, "t"))
        assert row.configs[0].documentation is None


async def test_only_the_keys_that_are_named() -> None:
    async with open_handlers() as broker:
        await broker.create("t", max_message_bytes="100")
        rows = await describe(
            broker, resource(TOPIC, "t", ["retention.ms", "no.such.key"]), resource(TOPIC, "t", ["no.such.key"])
        )
        assert [[one.name for one in row.configs] for row in rows] == [["retention.ms"], []]
        assert len((await describe(broker, resource(TOPIC, "t", [])))[0].configs) == 2


async def test_brokers_and_their_default() -> None:
    async with open_handlers() as broker:
        own, default = await describe(broker, resource(BROKER, str(NODE_ID)), resource(BROKER, ""))
        assert [(one.name, one.value, one.read_only, one.is_sensitive) for one in own.configs] == [
            ("log.retention.ms", "5", False, False),
            ("node.id", "1", True, False),
            ("ssl.key.password", None, True, True),
        ]
        assert [(one.name, one.value, one.config_source) for one in default.configs] == [("log.retention.ms", "7", 3)]


async def test_loggers_groups_and_clients_metrics() -> None:
    async with open_handlers() as broker:
        rows = await describe(broker, resource(LOGGER, str(NODE_ID)), resource(GROUP, "any"), resource(METRICS, "any"))
        assert [row.error_code for row in rows] == [0, 0, 0]
        logger, group, metrics = ({one.name: one.value for one in row.configs} for row in rows)
        assert logger == {"root": "INFO", "coordinator": "INFO", "kafkawire": "INFO"}
        assert not any(one.read_only for one in rows[0].configs)
        assert group["consumer.session.timeout.ms"] == "45000"
        assert metrics == {"interval.ms": "300000", "match": "", "metrics": ""}


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (resource(TOPIC, "nowhere"), 3, ""),
        (resource(TOPIC, "a b"), 17, ""),
        (resource(TOPIC, ""), 17, ""),
        (resource(BROKER, "2"), 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (resource(BROKER, "one"), 42, "Broker id must be an integer, but it is: one"),
        (resource(LOGGER, "2"), 42, "Unexpected broker id, expected 1 but received 2"),
        (resource(LOGGER, ""), 42, "Broker id must not be empty"),
        (resource(GROUP, ""), 42, "Group name must not be empty"),
        (resource(METRICS, ""), 42, "Client metrics subscription name must not be empty"),
    ],
)
async def test_an_invalid_resource_returns_its_own_error(asked: DescribeConfigsResource, code: int, text: str) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        refused, row = await describe(broker, asked, resource(TOPIC, "t"))
        assert (refused.error_code, refused.error_message, refused.configs) == (code, text, [])
        assert (refused.resource_type, refused.resource_name) == (asked.resource_type, asked.resource_name)
        assert row.configs


LONG = "\N{EURO SIGN}" * 10_922  # three bytes each: a protocol string cannot hold more text


@pytest.mark.parametrize("kind", [TOPIC, BROKER, LOGGER, GROUP, METRICS])
async def test_a_refusal_quotes_no_more_than_a_reply_can_hold(kind: int) -> None:
    own = {BROKER: str(NODE_ID), LOGGER: str(NODE_ID)}.get(kind, "t")
    async with open_handlers() as broker:
        await broker.create("t")
        assert len(await describe(broker, resource(kind, LONG), version=1)) == 1
        changes = altered(kind, own, (SET, LONG, LONG)), altered(kind, LONG, (SET, LONG, None))
        assert len(await increment(broker, *changes, version=0)) == 2


async def test_a_long_refusal_is_cut() -> None:
    async with open_handlers() as broker:
        rows = await increment(broker, altered(LOGGER, str(NODE_ID), (SET, "root", LONG)))
        assert rows == [(40, f"Cannot set the log level of root to {LONG}"[:8000])]


async def test_an_unknown_type_spoils_the_whole_request() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        rows = await describe(broker, resource(TOPIC, "t"), resource(3, "t"))
        assert [(row.error_code, row.configs) for row in rows] == [(42, []), (42, [])]


# IncrementalAlterConfigs


Change = tuple[int, str, str | None]


def altered(kind: int, name: str, *changes: Change) -> incremental_alter_configs.AlterConfigsResource:
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )


async def increment(
    broker: Broker, *resources: incremental_alter_configs.AlterConfigsResource, version: int = 1, **fields: bool
) -> list[tuple[int, str | None]]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=list(resources), **fields)
    rows = (await broker.ask(request, version)).responses
    named = [(one.resource_type, one.resource_name) for one in resources]
    assert [(row.resource_type, row.resource_name) for row in rows] == named
    return [(row.error_code, row.error_message) for row in rows]


@pytest.mark.parametrize("version", range(2))
async def test_single_keys_of_topics_and_brokers_change(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", kept_ms="1", gone_ms="2")
        rows = await increment(
            broker,
            altered(TOPIC, "t", (SET, "max.message.bytes", "50"), (DELETE, "gone.ms", None), (APPEND, LIST, "compact")),
            altered(BROKER, str(NODE_ID), (SET, "own.key", "1")),
            altered(BROKER, CLUSTER_DEFAULT, (SET, "b.key", "2")),
            version=version,
        )
        assert rows == [(0, None)] * 3
        image = broker.cluster.image
        assert image.topics["t"].configs == {"kept.ms": "1", "max.message.bytes": "50", LIST: "delete,compact"}
        assert image.broker_configs == {"": {"b.key": "2"}, "1": {"own.key": "1"}}
        assert broker.log("t").batch_size_max_bytes == 50
        assert await increment(broker, altered(TOPIC, "t", (SUBTRACT, LIST, "delete"))) == [(0, None)]
        assert broker.cluster.image.topics["t"].configs[LIST] == "compact"


async def test_validating_changes_nothing() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        good = altered(TOPIC, "t", (SET, "retention.ms", "5"))
        own = altered(BROKER, str(NODE_ID), (SET, "own.key", "1"))
        bad = altered(BROKER, "", (SET, "own.key", "1"))
        assert [code for code, _ in await increment(broker, good, own, bad, validate_only=True)] == [0, 0, 40]
        assert broker.cluster.image.topics["t"].configs == {}
        assert broker.cluster.image.broker_configs == {}


REFUSED = [
    (altered(TOPIC, "t", (SET, "unknown.key", "1")), 40, "Unknown topic config name: unknown.key"),
    (
        altered(TOPIC, "t", (APPEND, "retention.ms", "1")),
        40,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (altered(TOPIC, "nowhere", (SET, "retention.ms", "1")), 3, "The topic 'nowhere' does not exist."),
    (altered(TOPIC, "", (SET, "retention.ms", "1")), 42, "Default topic resources are not allowed."),
    (altered(TOPIC, "..", (SET, "retention.ms", "1")), 17, "Topic name is invalid: '.' or '..' is not allowed"),
    (
        altered(TOPIC, "t", (SET, "retention.ms", "1"), (DELETE, "retention.ms", None)),
        42,
        "Error due to duplicate config keys",
    ),
    (
        altered(TOPIC, "t", (SET, "retention.ms", None), (APPEND, LIST, None), (DELETE, "other", None)),
        42,
        "Null value not supported for : retention.ms, cleanup.policy",
    ),
    (altered(TOPIC, "t", (4, "retention.ms", "1")), 42, "Unknown operations type 4"),
    (altered(3, "t", (SET, "retention.ms", "1")), 42, "Unknown resource type 3"),
    (altered(BROKER, "2", (SET, "own.key", "1")), 42, "Unexpected broker id, expected 1, but received 2"),
    (altered(BROKER, "one", (SET, "own.key", "1")), 42, "Node id must be an integer, but it is: one"),
    (
        altered(BROKER, "", (SET, "own.key", "1")),
        40,
        "Cannot update these configs at default cluster level: own.key",
    ),
    (altered(LOGGER, "1", (SET, "no.such", "DEBUG")), 40, "Logger no.such does not exist!"),
    (altered(LOGGER, "1", (DELETE, "no.such", None)), 40, "Logger no.such does not exist!"),
    (
        altered(LOGGER, "1", (SET, "kafkawire", "WARN"), (SET, "root", "LOUD")),
        40,
        (
            "Cannot set the log level of root to LOUD as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
        ),
    ),
    (altered(LOGGER, "1", (DELETE, "root", None)), 42, "Removing the log level of the root logger is not allowed"),
    (
        altered(LOGGER, "1", (APPEND, "root", "INFO")),
        42,
        "APPEND operation is not allowed for the BROKER_LOGGER resource",
    ),
    (altered(LOGGER, "2", (SET, "root", "INFO")), 42, "Unexpected broker id, expected 1, but received 2"),
    (altered(LOGGER, "", (SET, "root", "INFO")), 42, "Node id must be an integer, but it is: "),
    (altered(GROUP, "", (SET, "consumer.session.timeout.ms", "1")), 42, "Default group resources are not allowed."),
    (altered(GROUP, "g", (SET, "no.such.key", "1")), 40, "Unknown group config name: no.such.key"),
    (
        altered(GROUP, "g", (SET, "consumer.session.timeout.ms", "1")),
        40,
        "consumer.session.timeout.ms=1 is not supported yet, only consumer.session.timeout.ms=45000",
    ),
    (altered(METRICS, "", (SET, "match", "")), 42, "Subscription name can't be empty"),
    (altered(METRICS, "m", (SET, "no.such.key", "1")), 42, "Unknown client metrics configuration: no.such.key"),
]


@pytest.mark.parametrize(("asked", "code", "text"), REFUSED)
async def test_an_invalid_config_change_is_refused_and_other_resources_change(
    asked: incremental_alter_configs.AlterConfigsResource, code: int, text: str
) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.create("other")
        rows = await increment(broker, asked, altered(TOPIC, "other", (SET, "retention.ms", "7")))
        assert rows == [(code, text), (0, None)]
        image = broker.cluster.image
        assert (image.topics["t"].configs, image.broker_configs) == ({}, {})


async def test_a_resource_named_twice_stays_as_it_is() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        one, two = (altered(TOPIC, "t", (SET, key, "1")) for key in ("a.ms", "b.ms"))
        assert await increment(broker, one, two) == [(42, "Each resource must appear at most once.")] * 2
        assert broker.cluster.image.topics["t"].configs == {}


async def test_levels_of_loggers_change_at_once() -> None:
    async def levels() -> dict[str, str]:
        [row] = await describe(broker, resource(LOGGER, str(NODE_ID)))
        return {one.name: one.value for one in row.configs}

    async with open_handlers() as broker:
        asked = altered(LOGGER, "1", (SET, "root", "ERROR"), (SET, "kafkawire", "DEBUG"))
        before = await levels()
        assert await increment(broker, asked, validate_only=True) == [(0, None)]
        assert await levels() == before
        assert await increment(broker, asked) == [(0, None)]
        assert await levels() == {"root": "ERROR", "coordinator": "ERROR", "kafkawire": "DEBUG"}
        assert await increment(broker, altered(LOGGER, "1", (DELETE, "kafkawire", None))) == [(0, None)]
        assert set((await levels()).values()) == {"ERROR"}


@pytest.mark.parametrize("kind", [GROUP, METRICS])
async def test_defaults_of_unsupported_resource_types_may_be_set(kind: int) -> None:
    key, value = {GROUP: ("consumer.session.timeout.ms", "45000"), METRICS: ("interval.ms", "300000")}[kind]
    async with open_handlers() as broker:
        assert await increment(broker, altered(kind, "x", (SET, key, value))) == [(0, None)]


# AlterConfigs


def replaced(kind: int, name: str, **configs: str | None) -> alter_configs.AlterConfigsResource:
    rows = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


async def replace_configs(
    broker: Broker, *resources: alter_configs.AlterConfigsResource, version: int = 2, **fields: bool
) -> list[tuple[int, str | None]]:
    request = alter_configs.AlterConfigsRequest(resources=list(resources), **fields)
    rows = (await broker.ask(request, version)).responses
    return [(row.error_code, row.error_message) for row in rows]


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_resets_keys_that_are_not_named(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", gone_ms="2", max_message_bytes="100")
        rows = await replace_configs(
            broker,
            replaced(TOPIC, "t", max_message_bytes="50"),
            replaced(BROKER, str(NODE_ID), own_key="1"),
            version=version,
        )
        assert rows == [(0, None), (0, None)]
        assert broker.cluster.image.topics["t"].configs == {"max.message.bytes": "50"}
        assert broker.cluster.image.broker_configs == {"1": {"own.key": "1"}}
        assert await replace_configs(broker, replaced(TOPIC, "t"), version=version) == [(0, None)]
        assert broker.cluster.image.topics["t"].configs == {}


async def test_replacing_can_be_validated_and_refused_too() -> None:
    async with open_handlers() as broker:
        await broker.create("t", kept_ms="1")
        assert await replace_configs(broker, replaced(TOPIC, "t"), validate_only=True) == [(0, None)]
        rows = await replace_configs(
            broker,
            replaced(TOPIC, "t", unknown_key="1"),
            replaced(TOPIC, "nowhere"),
            replaced(LOGGER, "1", root="DEBUG"),
            replaced(BROKER, "2"),
            replaced(GROUP, "g", a=None),
        )
        assert [code for code, _ in rows] == [40, 3, 42, 42, 42]
        assert broker.cluster.image.topics["t"].configs == {"kept.ms": "1"}


# ListConfigResources


async def resources(broker: Broker, *kinds: int, version: int = 1) -> tuple[int, set[tuple[int, str]]]:
    response = await broker.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    return response.error_code, {(one.resource_type, one.resource_name) for one in response.config_resources}


async def test_list_config_resources_returns_topics_brokers_and_loggers() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.cluster.changes["brokers"] = {number: BrokerInfo(number, ()) for number in (1, 2)}
        brokers = {(BROKER, "1"), (BROKER, "2")}
        loggers = {(LOGGER, "1"), (LOGGER, "2")}
        assert await resources(broker) == (0, {(TOPIC, "t"), *brokers, *loggers})
        assert await resources(broker, TOPIC, BROKER) == (0, {(TOPIC, "t"), *brokers})
        assert await resources(broker, GROUP, METRICS) == (0, set())
        assert await resources(broker, TOPIC, 3) == (35, set())
        assert await resources(broker, version=0) == (0, set())
