"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case
from compat_tests.differential.normalise import LISTED

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NODE = "1"
APPLIED_TIMEOUT_S = 10.0
LAST_CHANGED = "last-changed"

Change = tuple[int, str, str | None]


def describe(side: Side, version: int, label: str, *asked: tuple[int, str, list[str] | None], **options: bool) -> None:
    """Describe configs after every change of a topic that was acknowledged so far."""
    wait_for_changes(side)
    rows = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in asked]
    side.ask("describe_configs", version, {"resources": rows, **options}, label=label)


def resource(kind: int, name: str, *changes: Change) -> dict[str, Any]:
    configs = [{"name": key, "config_operation": operation, "value": value} for operation, key, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter(
    side: Side, api: str, version: int, label: str, *resources: dict[str, Any], validate_only: bool = False
) -> None:
    side.ask(api, version, {"resources": list(resources), "validate_only": validate_only}, label=label)


def wait_for(side: Side, kind: int, name: str, key: str, value: str | None) -> None:
    """Wait until the broker has the value: Apache Kafka answers earlier. None: no value of its own."""
    deadline = time.monotonic() + APPLIED_TIMEOUT_S
    own = {TOPIC: 1, BROKER: 2}[kind] if name else 3
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    while True:
        rows = side.quiet("describe_configs", 1, {"resources": [asked]})["results"][0]["configs"]
        found = next((row["value"] for row in rows if row["config_source"] == own), None)
        if found == value:
            return
        assert time.monotonic() < deadline, f"{side.broker.name}: {key} of {name!r} is {found}, not {value}"
        time.sleep(0.01)


def wait_for_changes(side: Side) -> None:
    """Wait until the broker has every change of topics acknowledged so far: a broker of Apache Kafka applies changes
    in the order of the metadata log, so one more change is made and waited for."""
    side.create_topic(LAST_CHANGED)
    value = str(time.monotonic_ns())
    change = {"resources": [resource(TOPIC, LAST_CHANGED, (SET, "flush.ms", value))], "validate_only": False}
    reply = side.quiet("incremental_alter_configs", 1, change)
    assert reply["responses"][0]["error_code"] == 0, f"{side.broker.name}: {reply}"
    wait_for(side, TOPIC, LAST_CHANGED, "flush.ms", value)


@case("describe_configs")
def of_a_topic(side: Side, version: int) -> None:
    side.create_topic("described", configs={"max.message.bytes": "2000", "flush.ms": "1000"})
    describe(side, version, "all", (TOPIC, "described", None))
    describe(side, version, "synonyms", (TOPIC, "described", None), include_synonyms=True)
    describe(side, version, "documentation", (TOPIC, "described", None), include_documentation=True)
    describe(side, version, "one key", (TOPIC, "described", ["max.message.bytes"]), include_synonyms=True)
    describe(side, version, "keys that are not", (TOPIC, "described", ["no.such.key", "flush.ms"]))
    describe(side, version, "no keys", (TOPIC, "described", []))
    describe(side, version, "twice", (TOPIC, "described", ["flush.ms"]), (TOPIC, "described", ["flush.messages"]))
    describe(side, version, "nothing")


@case("describe_configs")
def of_a_broker(side: Side, version: int) -> None:
    """Keys that both brokers have and neither was given: those that clients and tools ask for."""
    keys = [
        "node.id",
        "num.partitions",
        "default.replication.factor",
        "auto.create.topics.enable",
        "delete.topic.enable",
        "message.max.bytes",
        "log.segment.bytes",
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.bytes",
        "log.cleanup.policy",
        "log.message.timestamp.type",
        "compression.type",
        "min.insync.replicas",
        "offsets.retention.minutes",
        "group.max.session.timeout.ms",
        "socket.request.max.bytes",
        "max.connections.per.ip",
        "max.request.partition.size.limit",
        "no.such.key",
    ]
    describe(side, version, "some keys", (BROKER, NODE, keys))
    describe(side, version, "synonyms", (BROKER, NODE, keys), include_synonyms=True)
    describe(side, version, "documentation", (BROKER, NODE, keys), include_documentation=True)


@case("describe_configs", since=4)
def everything_of_a_broker(side: Side, version: int) -> None:
    describe(side, version, "all", (BROKER, NODE, None), include_synonyms=True)
    describe(side, version, "default", (BROKER, "", None), include_synonyms=True)


@case("describe_configs")
def of_other_things(side: Side, version: int) -> None:
    describe(side, version, "logger", (LOGGER, NODE, ["root"]))
    describe(side, version, "group", (GROUP, "no-such-group", None), include_synonyms=True)
    describe(side, version, "metrics", (METRICS, "no-such-metrics", None), include_synonyms=True)


@case("describe_configs")
def of_what_is_not(side: Side, version: int) -> None:
    side.create_topic("described-too")
    sound = (TOPIC, "described-too", ["flush.ms"])
    for kind, name in (
        (TOPIC, "no-such-topic"),
        (TOPIC, "bad name"),
        (TOPIC, ""),
        (BROKER, "2"),
        (BROKER, "one"),
        (BROKER, "01"),
        (LOGGER, "2"),
        (LOGGER, ""),
        (LOGGER, "one"),
        (GROUP, ""),
        (METRICS, ""),
        (3, "any"),
        (0, "any"),
    ):
        asked = (kind, name, ["flush.ms"] if kind == BROKER else None)
        describe(side, version, f"type {kind}, {name!r}", asked, sound)


@case("incremental_alter_configs")
def of_topics(side: Side, version: int) -> None:
    name = f"altered-{version}"
    side.create_topic(name, configs={"flush.ms": "1000"})

    def change(label: str, *changes: Change, validate_only: bool = False) -> None:
        alter(
            side,
            "incremental_alter_configs",
            version,
            label,
            resource(TOPIC, name, *changes),
            validate_only=validate_only,
        )

    change("set", (SET, "max.message.bytes", "3000"), (DELETE, "flush.ms", None))
    describe(side, 1, "after set", (TOPIC, name, ["max.message.bytes", "flush.ms"]))
    change("same again", (SET, "max.message.bytes", "3000"))
    change("delete what is not set", (DELETE, "flush.ms", None))
    change("delete with a value", (DELETE, "flush.ms", "7"))
    change("validate", (SET, "max.message.bytes", "4000"), validate_only=True)
    change("validate nonsense", (SET, "max.message.bytes", "much"), validate_only=True)
    change("nothing")
    describe(side, 1, "after all", (TOPIC, name, ["max.message.bytes", "flush.ms"]))


@case("incremental_alter_configs")
def lists(side: Side, version: int) -> None:
    name = f"lists-{version}"
    side.create_topic(name)

    def change(label: str, *changes: Change) -> None:
        alter(side, "incremental_alter_configs", version, label, resource(TOPIC, name, *changes))

    change("append", (APPEND, "cleanup.policy", "compact"))
    wait_for(side, TOPIC, name, "cleanup.policy", "delete,compact")
    change("append what is there", (APPEND, "cleanup.policy", "delete"))
    change("subtract", (SUBTRACT, "cleanup.policy", "delete"))
    wait_for(side, TOPIC, name, "cleanup.policy", "compact")
    change("subtract what is not there", (SUBTRACT, "cleanup.policy", "delete"))
    change("append nonsense", (APPEND, "cleanup.policy", "burn"))
    describe(side, 1, "after all", (TOPIC, name, ["cleanup.policy"]))


@case("incremental_alter_configs")
def refused(side: Side, version: int) -> None:
    name = f"not-altered-{version}"
    side.create_topic(name)
    for label, kind, resource_name, changes in (
        ("unknown key", TOPIC, name, [(SET, "no.such.key", "1")]),
        ("delete an unknown key", TOPIC, name, [(DELETE, "no.such.key", None)]),
        ("empty key", TOPIC, name, [(SET, "", "1")]),
        ("bad value", TOPIC, name, [(SET, "max.message.bytes", "-1")]),
        ("one good and one bad", TOPIC, name, [(SET, "flush.ms", "1"), (SET, "flush.messages", "0")]),
        ("append to a number", TOPIC, name, [(APPEND, "flush.ms", "1")]),
        ("subtract from a number", TOPIC, name, [(SUBTRACT, "flush.ms", "1")]),
        ("append to an unknown key", TOPIC, name, [(APPEND, "no.such.key", "1")]),
        ("null", TOPIC, name, [(SET, "flush.ms", None)]),
        ("append null", TOPIC, name, [(APPEND, "cleanup.policy", None)]),
        ("same key twice", TOPIC, name, [(SET, "flush.ms", "1"), (SET, "flush.ms", "2")]),
        ("unknown operation", TOPIC, name, [(4, "flush.ms", "1")]),
        ("no such topic", TOPIC, "no-such-topic", [(SET, "flush.ms", "1")]),
        ("no such topic nor key", TOPIC, "no-such-topic", [(SET, "no.such.key", "1")]),
        ("bad name", TOPIC, "bad name", [(SET, "flush.ms", "1")]),
        ("no name", TOPIC, "", [(SET, "flush.ms", "1")]),
        ("other broker", BROKER, "2", [(SET, "message.max.bytes", "1000")]),
        ("no number", BROKER, "one", [(SET, "message.max.bytes", "1000")]),
        ("read-only key", BROKER, NODE, [(SET, "log.dirs", "/elsewhere")]),
        ("read-only key of all", BROKER, "", [(SET, "node.id", "5")]),
        ("bad value of a broker", BROKER, NODE, [(SET, "message.max.bytes", "much")]),
        ("append to a broker's number", BROKER, NODE, [(APPEND, "message.max.bytes", "1")]),
        ("logger that is not", LOGGER, NODE, [(SET, "no.such.logger", "INFO")]),
        ("logger that is not, deleted", LOGGER, NODE, [(DELETE, "no.such.logger", None)]),
        ("level that is not", LOGGER, NODE, [(SET, "root", "LOUD")]),
        ("level in small letters", LOGGER, NODE, [(SET, "root", "info")]),
        ("root without a level", LOGGER, NODE, [(DELETE, "root", None)]),
        ("append to a level", LOGGER, NODE, [(APPEND, "root", "INFO")]),
        ("subtract from a level", LOGGER, NODE, [(SUBTRACT, "no.such.logger", "INFO")]),
        ("other broker's level", LOGGER, "2", [(SET, "root", "INFO")]),
        ("level of no number", LOGGER, "one", [(SET, "root", "INFO")]),
        ("level of nobody", LOGGER, "", [(SET, "root", "INFO")]),
        ("group without a name", GROUP, "", [(SET, "consumer.session.timeout.ms", "45000")]),
        ("group's unknown key", GROUP, "g", [(SET, "no.such.key", "1")]),
        ("metrics without a name", METRICS, "", [(SET, "interval.ms", "300000")]),
        ("metrics' unknown key", METRICS, "m", [(SET, "no.such.key", "1")]),
        ("unknown type", 3, "any", [(SET, "flush.ms", "1")]),
    ):
        alter(side, "incremental_alter_configs", version, label, resource(kind, resource_name, *changes))
    twice = [resource(TOPIC, name, (SET, "flush.ms", "1")), resource(TOPIC, name, (SET, "flush.ms", "2"))]
    alter(side, "incremental_alter_configs", version, "same resource twice", *twice)
    good = resource(TOPIC, name, (SET, "flush.messages", "7"))
    alter(side, "incremental_alter_configs", version, "good and bad", good, resource(TOPIC, "no-such-topic"))
    alter(side, "incremental_alter_configs", version, "none")
    describe(side, 1, "after all", (TOPIC, name, ["flush.ms", "flush.messages"]))


@case("incremental_alter_configs")
def of_loggers(side: Side, version: int) -> None:
    """Log levels change at once; with `validate_only` they do not change."""
    for label, level, validate_only in (("asked", "ERROR", True), ("done", "WARN", False), ("undone", "INFO", False)):
        asked = resource(LOGGER, NODE, (SET, "root", level))
        alter(side, "incremental_alter_configs", version, label, asked, validate_only=validate_only)
        describe(side, 1, f"then, {label}", (LOGGER, NODE, ["root"]))


@case("incremental_alter_configs")
def of_brokers(side: Side, version: int) -> None:
    """Set and delete keys of one broker and of all; afterwards the keys are as before, for later scenarios."""
    name = f"of-brokers-{version}"
    side.create_topic(name)
    for broker, value in ((NODE, "2000000"), ("", "3000000")):
        alter(
            side,
            "incremental_alter_configs",
            version,
            f"set for {broker!r}",
            resource(BROKER, broker, (SET, "message.max.bytes", value)),
        )
        wait_for(side, BROKER, broker, "message.max.bytes", value)
    keys = ["message.max.bytes"]
    describe(side, 1, "broker", (BROKER, NODE, keys), include_synonyms=True)
    describe(side, 1, "default", (BROKER, "", keys), include_synonyms=True)
    describe(side, 1, "topic", (TOPIC, name, ["max.message.bytes"]), include_synonyms=True)
    for broker in (NODE, ""):
        alter(
            side,
            "incremental_alter_configs",
            version,
            f"delete for {broker!r}",
            resource(BROKER, broker, (DELETE, "message.max.bytes", None)),
        )
        wait_for(side, BROKER, broker, "message.max.bytes", None)
    describe(side, 1, "broker again", (BROKER, NODE, keys), include_synonyms=True)
    describe(side, 1, "topic again", (TOPIC, name, ["max.message.bytes"]), include_synonyms=True)


@case("alter_configs")
def replaced(side: Side, version: int) -> None:
    name = f"replaced-{version}"
    side.create_topic(name, configs={"flush.ms": "1000", "max.message.bytes": "2000"})

    def replace(label: str, *changes: tuple[str, str | None], validate_only: bool = False) -> None:
        asked = resource(TOPIC, name, *((SET, key, value) for key, value in changes))
        alter(side, "alter_configs", version, label, asked, validate_only=validate_only)

    replace("validate", ("flush.ms", "1"), validate_only=True)
    replace("replace", ("max.message.bytes", "3000"))
    describe(side, 1, "after it", (TOPIC, name, ["max.message.bytes", "flush.ms"]))
    replace("unknown key", ("no.such.key", "1"))
    replace("null", ("flush.ms", None))
    replace("same key twice", ("flush.ms", "1"), ("flush.ms", "2"))
    replace("nothing")
    describe(side, 1, "after nothing", (TOPIC, name, ["max.message.bytes", "flush.ms"]))
    for kind, other in ((TOPIC, "no-such-topic"), (TOPIC, ""), (BROKER, "2"), (LOGGER, NODE), (3, "any")):
        alter(side, "alter_configs", version, f"type {kind}, {other!r}", resource(kind, other, (SET, "flush.ms", "1")))
    alter(side, "alter_configs", version, "same resource twice", *[resource(TOPIC, name)] * 2)


@case("list_config_resources")
def what_has_configs(side: Side, version: int) -> None:
    side.create_topic(f"{LISTED}configs")
    for kinds in ([TOPIC], [BROKER], [LOGGER], [METRICS], [GROUP], [BROKER, METRICS], [3], [BROKER, 3], [0], []):
        side.ask("list_config_resources", version, {"resource_types": kinds}, label=f"types {kinds}")
