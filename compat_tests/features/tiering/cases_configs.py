"""Configs of a topic in the tier: error codes, and here texts too, because only they tell the rules apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_configs import DELETE, SET, TOPIC, describe, resource, wait_for
from compat_tests.differential.cases_topics import TIMEOUT_MS, topic
from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.cases_configs import Change
    from compat_tests.differential.side import Side

ENABLE, COPY_DISABLE = "remote.storage.enable", "remote.log.copy.disable"
DELETE_ON_DISABLE = "remote.log.delete.on.disable"
POLICY = "cleanup.policy"
BYTES, LOCAL_BYTES = "retention.bytes", "local.retention.bytes"
MS, LOCAL_MS = "retention.ms", "local.retention.ms"
KEYS = [ENABLE, COPY_DISABLE, DELETE_ON_DISABLE, BYTES, LOCAL_BYTES, MS, LOCAL_MS, POLICY]
TIERED = {ENABLE: "true"}
NOT_COPIED = {**TIERED, COPY_DISABLE: "true"}

# Each is asked for with the tier and without it.
TOGETHER: tuple[dict[str, str], ...] = (
    {},
    {POLICY: "delete"},
    {POLICY: "compact"},
    {POLICY: "compact,delete"},
    {POLICY: "delete,compact"},
    {POLICY: ""},
    *(
        {total: all_of_it, local: some_of_it}
        for total, local in ((BYTES, LOCAL_BYTES), (MS, LOCAL_MS))
        for all_of_it in ("-1", "0", "1000")
        for some_of_it in ("-3", "-2", "-1", "0", "999", "1000", "1001", "x")
    ),
    {LOCAL_BYTES: "-1"},
    {LOCAL_BYTES: "5"},
    {LOCAL_MS: "-1"},
    {LOCAL_MS: "604800000"},
    {LOCAL_MS: "604800001"},
    {BYTES: "1", LOCAL_BYTES: "2", MS: "1", LOCAL_MS: "2"},
    {POLICY: "compact", BYTES: "1", LOCAL_BYTES: "2"},
)


def said(configs: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in configs.items()) or "nothing else"


def create(side: Side, label: str, name: str, configs: dict[str, str], *, validate_only: bool = True) -> None:
    """Create a topic, and note the reply and the text of a refusal."""
    wanted = topic(name, configs=[{"name": key, "value": value} for key, value in configs.items()])
    fields = {"topics": [wanted], "timeout": TIMEOUT_MS, "validate_only": validate_only}
    reply = side.ask("create_topics", 7, fields, label=label)
    side.note(f"{label}: text", reply["topics"][0]["error_message"])


def alter(side: Side, label: str, name: str, *changes: Change, validate_only: bool = False) -> None:
    """Alter configs, and note the reply and the text of a refusal."""
    fields: dict[str, Any] = {"resources": [resource(TOPIC, name, *changes)], "validate_only": validate_only}
    reply = side.ask("incremental_alter_configs", 1, fields, label=label)
    side.note(f"{label}: text", reply["responses"][0]["error_message"])


def replace(side: Side, label: str, name: str, configs: dict[str, str]) -> None:
    """Replace all configs of a topic at once."""
    changes = ((SET, key, value) for key, value in configs.items())
    fields = {"resources": [resource(TOPIC, name, *changes)], "validate_only": False}
    reply = side.ask("alter_configs", 2, fields, label=label)
    side.note(f"{label}: text", reply["responses"][0]["error_message"])


@case("create_topics", (7,))
def configs_together(side: Side, _: int) -> None:
    for configs in TOGETHER:
        for kind, tier in (("not in the tier", {}), ("in the tier", TIERED), ("not copied", NOT_COPIED)):
            create(side, f"{kind}, {said(configs)}", "together", {**tier, **configs})


@case("create_topics", (7,))
def values_of_the_keys(side: Side, _: int) -> None:
    for key in (ENABLE, COPY_DISABLE, DELETE_ON_DISABLE):
        for value in ("true", "false", "TRUE", "yes", "1", ""):
            create(side, f"{key}={value}", "values", {key: value})


@case("incremental_alter_configs", (1,))
def into_the_tier(side: Side, _: int) -> None:
    """Put a topic into the tier that was not in it."""
    side.create_topic("into")
    alter(side, "with compaction", "into", (SET, ENABLE, "true"), (SET, POLICY, "compact"))
    alter(side, "more here than in all", "into", (SET, ENABLE, "true"), (SET, BYTES, "1"), (SET, LOCAL_BYTES, "2"))
    alter(side, "more time here than in all", "into", (SET, ENABLE, "true"), (SET, LOCAL_MS, "-1"))
    alter(
        side, "not copied, less here", "into", (SET, ENABLE, "true"), (SET, COPY_DISABLE, "true"), (SET, LOCAL_MS, "1")
    )
    alter(side, "without the tier anything goes", "into", (SET, BYTES, "1"), (SET, LOCAL_BYTES, "2"))
    wait_for(side, TOPIC, "into", LOCAL_BYTES, "2")
    alter(side, "and then not with it", "into", (SET, ENABLE, "true"))
    alter(side, "taken back", "into", (DELETE, BYTES, None), (DELETE, LOCAL_BYTES, None))
    alter(side, "asked", "into", (SET, ENABLE, "true"), validate_only=True)
    describe(side, 4, "after asking", (TOPIC, "into", KEYS))
    alter(side, "done", "into", (SET, ENABLE, "true"))
    describe(side, 4, "after it", (TOPIC, "into", KEYS), include_synonyms=True)


@case("incremental_alter_configs", (1,))
def in_the_tier(side: Side, _: int) -> None:
    name = "in"
    side.create_topic(name, configs=TIERED)
    for policy in ("compact", "compact,delete", ""):
        alter(side, f"policy {policy!r}", name, (SET, POLICY, policy))
    for key, value in ((LOCAL_BYTES, "5"), (LOCAL_MS, "604800001"), (LOCAL_MS, "-1"), (LOCAL_MS, "5")):
        alter(side, f"{key}={value}", name, (SET, key, value))
    wait_for(side, TOPIC, name, LOCAL_MS, "5")
    for key, value in ((BYTES, "4"), (BYTES, "5"), (MS, "4"), (MS, "-1")):
        alter(side, f"{key}={value}", name, (SET, key, value))
    wait_for(side, TOPIC, name, MS, "-1")
    alter(side, "not copied", name, (SET, COPY_DISABLE, "true"))
    alter(side, "not copied, all bytes here", name, (SET, COPY_DISABLE, "true"), (SET, LOCAL_BYTES, "5"))
    alter(side, "not copied, all time here", name, (SET, COPY_DISABLE, "true"), (SET, LOCAL_MS, "-1"))
    alter(side, "and as records", name, (SET, COPY_DISABLE, "true"), (SET, LOCAL_MS, "-2"))
    wait_for(side, TOPIC, name, COPY_DISABLE, "true")
    alter(side, "less is here", name, (SET, LOCAL_MS, "7"))
    alter(side, "more in all", name, (SET, BYTES, "6"))
    alter(side, "copied again", name, (SET, COPY_DISABLE, "false"), (SET, LOCAL_MS, "7"))
    describe(side, 4, "after all", (TOPIC, name, KEYS), include_synonyms=True)


@case("incremental_alter_configs", (1,))
def out_of_the_tier(side: Side, _: int) -> None:
    name = "out"
    side.create_topic(name, configs=TIERED)
    alter(side, "disabled", name, (SET, ENABLE, "false"))
    alter(side, "deleted", name, (DELETE, ENABLE, None))
    alter(side, "disabled and compacted", name, (SET, ENABLE, "false"), (SET, POLICY, "compact"))
    alter(side, "nothing is to be deleted", name, (SET, ENABLE, "false"), (SET, DELETE_ON_DISABLE, "false"))
    replace(side, "replaced by nothing", name, {})
    replace(side, "replaced by false", name, {ENABLE: "false"})
    replace(side, "replaced by the same", name, TIERED)
    alter(side, "asked", name, (SET, ENABLE, "false"), (SET, DELETE_ON_DISABLE, "true"), validate_only=True)
    describe(side, 4, "after all", (TOPIC, name, KEYS))
    alter(side, "that it would be deleted", name, (SET, DELETE_ON_DISABLE, "true"))
    alter(side, "and deleted", name, (SET, ENABLE, "false"), (SET, DELETE_ON_DISABLE, "true"))
    alter(side, "into it again", name, (SET, ENABLE, "true"))


@case("describe_configs")
def keys_of_the_tier(side: Side, version: int) -> None:
    side.create_topic("described-in-tier", configs={**TIERED, LOCAL_BYTES: "1000", LOCAL_MS: "2000"})
    describe(side, version, "set", (TOPIC, "described-in-tier", KEYS), include_synonyms=True)
    side.create_topic("described-elsewhere")
    describe(side, version, "not set", (TOPIC, "described-elsewhere", KEYS), include_synonyms=True)
