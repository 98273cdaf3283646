"""Options of a reporter: the cluster, the group of each query, and the obeyed settings of Kafka's clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from spark_connectors.options import HARMLESS, KAFKA_PREFIX, OptionRefused, Options, bootstrap_of, settings_of
from spark_connectors.wire import Address, Settings

QUERY: Final = "{query}"
_PATIENCE: Final = "default.api.timeout.ms"
_PATIENCE_MS: Final = "10000"  # of one attempt, while newer offsets may be waiting
_GROUP: Final = frozenset({"group.id"})  # it would have an effect here, and is given as group_id


@dataclass(frozen=True)
class ReportOptions:
    """Options of one reporter."""

    bootstrap: tuple[Address, ...]
    settings: Settings
    group_id: str  # with QUERY in place of a query's name
    queries: frozenset[str] | None  # names of the reported queries; None: all
    topics: frozenset[str] | None  # names of the reported topics; None: all


def report_options(
    bootstrap_servers: str,
    group_id: str,
    queries: Collection[str] | None,
    topics: Collection[str] | None,
    raw: Mapping[str, str],
) -> ReportOptions:
    """Raises OptionRefused."""
    servers = f"{KAFKA_PREFIX}bootstrap.servers"
    if any(name.lower() == servers for name in raw):
        raise OptionRefused(f"option {servers} is said as bootstrap_servers here")
    if not group_id:
        raise OptionRefused("group_id names no group")
    for name, value in (("queries", queries), ("topics", topics)):
        if isinstance(value, str):
            raise OptionRefused(f"{name} is one text instead of several: say [{value!r}]")
    options = Options({f"{KAFKA_PREFIX}{_PATIENCE}": _PATIENCE_MS, **raw, servers: bootstrap_servers})
    found = ReportOptions(
        bootstrap=bootstrap_of(options),
        settings=settings_of(options, HARMLESS - _GROUP, _PATIENCE),
        group_id=group_id,
        queries=None if queries is None else frozenset(queries),
        topics=None if topics is None else frozenset(topics),
    )
    options.finish()
    return found
