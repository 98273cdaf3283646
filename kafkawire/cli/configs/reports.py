"""`kafkawire configs get | set`: questions to the cluster, and reports of the answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from kafkawire.cli.common.cluster_command import Report
from kafkawire.client.cluster import Cluster
from kafkawire.client.configs import Change, Resource, alter_configs, describe_configs
from kafkawire.config.keys import is_secret
from kafkawire.messages.describe_configs import DescribeConfigsResourceResult

DEFAULT: Final = 5
SENSITIVE: Final = "(sensitive)"
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all-brokers",
    4: "file",
    DEFAULT: "default",
    6: "broker-logger",
    7: "client-metrics",
    8: "group",
}
TYPES: Final = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


async def report_configs(cluster: Cluster, resource: Resource, keys: Collection[str], every: bool) -> Report:
    """`configs get`."""
    found = await describe_configs(cluster, resource, keys)
    shown = [one for one in found if every or one.config_source != DEFAULT]
    missing = sorted(set(keys) - {one.name for one in found})
    return Report(
        document=[_document(one) for one in shown],
        columns=("KEY", "VALUE", "SOURCE", "READ-ONLY"),
        rows=[(one.name, _value(one), _source(one.config_source), "yes" if one.read_only else "no") for one in shown],
        problems=[f"{resource} has no {key}" for key in missing],
    )


def _value(one: DescribeConfigsResourceResult) -> str | None:
    return SENSITIVE if one.is_sensitive else one.value


def _source(number: int) -> str:
    return SOURCES.get(number, str(number))


def _document(one: DescribeConfigsResourceResult) -> dict[str, Any]:
    return {
        "key": one.name,
        "value": one.value,
        "source": _source(one.config_source),
        "type": TYPES[one.config_type] if 0 <= one.config_type < len(TYPES) else str(one.config_type),
        "read_only": one.read_only,
        "sensitive": one.is_sensitive,
        "documentation": one.documentation,
        "synonyms": [
            {"key": synonym.name, "value": synonym.value, "source": _source(synonym.source)} for synonym in one.synonyms
        ],
    }


async def report_changes(cluster: Cluster, resource: Resource, changes: Sequence[Change], dry_run: bool) -> Report:
    """`configs set`."""
    await alter_configs(cluster, resource, changes, validate_only=dry_run)
    rows = [
        (
            change.key,
            change.operation.name.lower(),
            SENSITIVE if change.value and is_secret(change.key) else change.value,
        )
        for change in changes
    ]
    return Report(
        document={
            "executed": not dry_run,
            "changes": [{"key": key, "operation": operation, "value": value} for key, operation, value in rows],
        },
        columns=("KEY", "OPERATION", "VALUE"),
        rows=rows,
        remarks=["nothing was changed: --dry-run"] if dry_run else [],
    )
