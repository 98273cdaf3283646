"""`kafkawire groups list | describe | lag`: questions to the cluster, and reports of the answers.

Lag is the end of the log, as consumers see it, less the committed offset. It is unknown if nothing is committed or the
end cannot be read. A sum adds the known lags. A lag below zero, after a log lost its end, counts as zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kafkawire.cli.common.cluster_command import Report
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import Refusal
from kafkawire.client.groups import (
    CLASSIC,
    CONSUMER,
    Committed,
    CommittedOffsets,
    Group,
    Member,
    committed_offsets,
    describe_groups,
    list_groups,
)
from kafkawire.client.offsets import EARLIEST, LATEST, offsets_at
from kafkawire.client.partitions import TopicPartition, by_topic

# Group types with offsets in OffsetFetch. Brokers too old to tell the type have only such groups.
_TYPES_WITH_OFFSETS: Final = frozenset({CLASSIC, CONSUMER, ""})
_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
_POSITION_COLUMNS: Final = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-START-OFFSET", "LOG-END-OFFSET", "LAG",
    "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip
_MEMBER_COLUMNS: Final = (
    "GROUP", "ASSIGNOR", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT",
)  # fmt: skip

_ValueT = TypeVar("_ValueT")

Offsets = Mapping[TopicPartition, int | Refusal]


@dataclass(frozen=True, slots=True)
class Position:
    """Committed offset of a group in a partition, and the member that reads it.

    Members without partitions have none.
    """

    partition: TopicPartition | None
    committed: Committed | None = None
    start: int | None = None
    end: int | None = None
    member: Member | None = None

    @property
    def lag(self) -> int | None:
        """The lag in records; None if unknown."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


async def report_list(cluster: Cluster, states: Sequence[str], types: Sequence[str]) -> Report:
    """`groups list`."""
    listed = await list_groups(cluster, states, types)
    return Report(
        document=[
            {
                "group": one.group_id,
                "state": one.state or None,
                "type": one.group_type or None,
                "protocol_type": one.protocol_type,
            }
            for one in listed
        ],
        columns=("GROUP", "STATE", "TYPE", "PROTOCOL-TYPE"),
        rows=[[cell or None for cell in one] for one in listed],
    )


async def report_offsets(cluster: Cluster, group_ids: Collection[str]) -> Report:
    """`groups describe`: a row for each partition that is read or has a committed offset."""
    groups, problems = await _described(cluster, group_ids)
    committed, refused = _accepted(await committed_offsets(cluster, groups))
    wanted = {one for group in groups.values() for one in _partitions(group, committed.get(group.group_id, {}))}
    starts, ends = await offsets_at(cluster, wanted, EARLIEST), await offsets_at(cluster, wanted, LATEST)
    found = {group_id: positions(groups[group_id], offsets, starts, ends) for group_id, offsets in committed.items()}
    return Report(
        document=[
            {**_group_document(groups[group_id]), "partitions": [_position_document(one) for one in group_positions]}
            for group_id, group_positions in found.items()
        ],
        columns=_POSITION_COLUMNS,
        rows=[_position_row(group_id, one) for group_id, group_positions in found.items() for one in group_positions],
        remarks=[*_state_remarks(groups), *_missing(ends)],
        problems=[*problems, *refused],
    )


async def report_members(cluster: Cluster, group_ids: Collection[str]) -> Report:
    """`groups describe --members`: a row for each member."""
    groups, problems = await _described(cluster, group_ids)
    return Report(
        document=[
            {**_group_document(group), "members": [_member_document(one) for one in group.members]}
            for group in groups.values()
        ],
        columns=_MEMBER_COLUMNS,
        rows=[_member_row(group, one) for group in groups.values() for one in group.members],
        remarks=_state_remarks(groups),
        problems=problems,
    )


async def report_lag(cluster: Cluster, group_ids: Collection[str], lag_max: int | None) -> Report:
    """`groups lag`: groups by falling lag, and the topics of each group likewise."""
    groups, problems = await _described(cluster, group_ids)
    committed, refused = _accepted(await committed_offsets(cluster, groups))
    wanted = {one for group_id, offsets in committed.items() for one in _partitions(groups[group_id], offsets)}
    ends = await offsets_at(cluster, wanted, LATEST)
    totals = [
        LagTotal(group_id, positions(groups[group_id], offsets, {}, ends)) for group_id, offsets in committed.items()
    ]
    totals.sort(key=lambda one: (-(one.lag or 0), one.name))
    over = [] if lag_max is None else [one for one in totals if (one.lag or 0) > lag_max]
    return Report(
        document=[
            {
                "group": total.name,
                "state": groups[total.name].state,
                **total.document(),
                "topics": [{"topic": topic.name, **topic.document()} for topic in total.topics()],
            }
            for total in totals
        ],
        columns=("GROUP", "TOPIC", "PARTITIONS", "UNKNOWN", "LAG"),
        rows=[
            (total.name, name, one.partition_count, one.unknown_count, one.lag)
            for total in totals
            for name, one in [("*", total), *((topic.name, topic) for topic in total.topics())]
        ],
        remarks=_missing(ends),
        problems=[*problems, *refused, *(f"group {one.name} lags by {one.lag}, more than {lag_max}" for one in over)],
    )


class LagTotal:
    """The lag of a group, or of a group in a topic."""

    def __init__(self, name: str, positions: Sequence[Position]) -> None:
        self._positions = [one for one in positions if one.partition is not None]
        lags = [one.lag for one in self._positions if one.lag is not None]
        self.name = name
        self.partition_count = len(self._positions)
        self.unknown_count = len(self._positions) - len(lags)
        self.lag = sum(max(0, lag) for lag in lags) if lags or not self._positions else None

    def topics(self) -> list[LagTotal]:
        """Lag by topic, the greatest first."""
        by_name: dict[str, list[Position]] = {}
        for one in self._positions:
            assert one.partition is not None
            by_name.setdefault(one.partition.topic, []).append(one)
        totals = [LagTotal(name, positions) for name, positions in by_name.items()]
        return sorted(totals, key=lambda one: (-(one.lag or 0), one.name))

    def document(self) -> dict[str, object]:
        """The lag as a JSON object."""
        return {"lag": self.lag, "partitions": self.partition_count, "unknown_partitions": self.unknown_count}


def positions(group: Group, committed: CommittedOffsets, starts: Offsets, ends: Offsets) -> list[Position]:
    """Positions in the order of partitions. Members without partitions come last."""
    reader = {one: member for member in group.members for one in member.partitions or ()}
    known = [
        Position(one, committed.get(one), _number(starts.get(one)), _number(ends.get(one)), reader.get(one))
        for one in _partitions(group, committed)
    ]
    return [*known, *(Position(None, member=member) for member in group.members if not member.partitions)]


def _partitions(group: Group, committed: CommittedOffsets) -> list[TopicPartition]:
    """Partitions with a committed offset, or with a reader."""
    return sorted({*committed, *(one for member in group.members for one in member.partitions or ())})


def _number(offset: int | Refusal | None) -> int | None:
    return None if isinstance(offset, Refusal) else offset


async def _described(cluster: Cluster, group_ids: Collection[str]) -> tuple[dict[str, Group], list[str]]:
    """Descriptions of these groups, or of all groups with offsets, and a line for each refused group."""
    every = [] if group_ids else await list_groups(cluster)
    listed = [one.group_id for one in every if one.group_type in _TYPES_WITH_OFFSETS]
    return _accepted(await describe_groups(cluster, group_ids or listed))


def _accepted(answers: Mapping[str, _ValueT | Refusal]) -> tuple[dict[str, _ValueT], list[str]]:
    """Split answers by group into results and a line for each refusal."""
    accepted = {group_id: one for group_id, one in sorted(answers.items()) if not isinstance(one, Refusal)}
    refused = [f"group {group_id}: {one}" for group_id, one in sorted(answers.items()) if isinstance(one, Refusal)]
    return accepted, refused


def _state_remarks(groups: Mapping[str, Group]) -> list[str]:
    remarks = []
    for group_id, group in groups.items():
        if group.state in _REBALANCING:
            remarks.append(f"group {group_id} is rebalancing")
        elif not group.members:
            remarks.append(f"group {group_id} has no active members")
    return remarks


def _missing(ends: Offsets) -> list[str]:
    return [f"{one}: {end}" for one, end in sorted(ends.items()) if isinstance(end, Refusal)]


def _assignment(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    return [(topic, [one.partition for one in topic_partitions]) for topic, topic_partitions in by_topic(partitions)]


def _group_document(group: Group) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": str(group.coordinator),
    }


def _position_document(one: Position) -> dict[str, object]:
    return {
        "topic": one.partition and one.partition.topic,
        "partition": one.partition and one.partition.partition,
        "committed_offset": one.committed and one.committed.offset,
        "leader_epoch": one.committed and one.committed.leader_epoch,
        "log_start_offset": one.start,
        "log_end_offset": one.end,
        "lag": one.lag,
        "consumer_id": one.member and one.member.member_id,
        "host": one.member and one.member.client_host,
        "client_id": one.member and one.member.client_id,
    }


def _position_row(group_id: str, one: Position) -> list[object]:
    document = _position_document(one)
    del document["leader_epoch"]
    return [group_id, *document.values()]


def _member_document(member: Member) -> dict[str, object]:
    return {
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "partition_count": None if member.partitions is None else len(member.partitions),
        "assignment": None if member.partitions is None else dict(_assignment(member.partitions)),
    }


def _member_row(group: Group, member: Member) -> list[object]:
    *cells, _ = _member_document(member).values()
    assigned = [
        f"{topic}:{','.join(map(str, topic_partitions))}"
        for topic, topic_partitions in _assignment(member.partitions or [])
    ]
    return [group.group_id, group.assignor or None, *cells, ";".join(assigned) or None]
