"""Collects the scenarios: functions that send requests to one side, registered with the versions they run in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compat_tests.differential.side import Side

# The ranges that kafkawire serves.
VERSIONS = {
    "produce": range(3, 14),
    "fetch": range(4, 19),
    "list_offsets": range(1, 12),
    "metadata": range(14),
    "find_coordinator": range(7),
    "api_versions": range(6),
    "create_topics": range(2, 8),
    "delete_topics": range(1, 7),
    "describe_cluster": range(3),
    "init_producer_id": range(6),
    "delete_records": range(3),
    "offset_for_leader_epoch": range(2, 5),
    "join_group": range(10),
    "sync_group": range(6),
    "heartbeat": range(5),
    "leave_group": range(6),
    "offset_commit": range(2, 11),
    "offset_fetch": range(1, 11),
    "offset_delete": range(1),
    "describe_groups": range(7),
    "list_groups": range(6),
    "delete_groups": range(4),
    "describe_configs": range(1, 5),
    "alter_configs": range(3),
    "describe_log_dirs": range(1, 6),
    "create_partitions": range(4),
    "incremental_alter_configs": range(2),
    "describe_producers": range(1),
    "list_config_resources": range(2),
    "describe_topic_partitions": range(1),
    "add_partitions_to_txn": range(6),
    "add_offsets_to_txn": range(5),
    "end_txn": range(6),
    "write_txn_markers": range(1, 3),
    "txn_offset_commit": range(7),
    "describe_transactions": range(1),
    "list_transactions": range(3),
    "update_features": range(3),
    "alter_partition_reassignments": range(2),
    "list_partition_reassignments": range(1),
    "elect_leaders": range(3),
    "unregister_broker": range(1),
    "sasl_handshake": range(2),
    "sasl_authenticate": range(3),
}


@dataclass(frozen=True)
class Case:
    """A scenario and the versions of its API that it runs in."""

    name: str
    api: str
    versions: tuple[int, ...]
    play: Callable[[Side, int], None]


CASES: list[Case] = []


def case(
    api: str, versions: Iterable[int] | None = None, *, since: int = 0, until: int = 99
) -> Callable[[Callable[[Side, int], None]], Callable[[Side, int], None]]:
    """Registers a scenario for the versions of `api`, or those of them between `since` and `until`."""

    def register(play: Callable[[Side, int], None]) -> Callable[[Side, int], None]:
        chosen = VERSIONS[api] if versions is None else versions
        found = tuple(version for version in chosen if since <= version <= until)
        CASES.append(Case(f"{api}.{play.__name__}", api, found, play))
        return play

    return register
