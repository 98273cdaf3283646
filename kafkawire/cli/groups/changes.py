"""`kafkawire groups reset | delete`: requests to the cluster, and reports of the results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkawire.cli.common.cluster_command import Report
from kafkawire.cli.groups.offset_reset import Goal, Known, Move, ResetRefused, ResetTarget, plan
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import ClientError, Refusal
from kafkawire.client.groups import (
    DEAD,
    CommittedOffsets,
    OffsetResults,
    commit_offsets,
    committed_offsets,
    delete_groups,
    delete_offsets,
    describe_groups,
)
from kafkawire.client.offsets import EARLIEST, LATEST, NO_OFFSET, offsets_at, partitions_of
from kafkawire.client.partitions import TopicPartition
from kafkawire.requests.errors import ErrorCode

_INACTIVE: Final = frozenset({"Empty", DEAD})


@dataclass(frozen=True, slots=True)
class Scope:
    """Partitions of a reset: named ones, all of a topic that names none, or all committed ones."""

    topics: Mapping[str, Sequence[TopicPartition]]
    has_all_committed: bool = False


async def report_reset(
    cluster: Cluster, group_id: str, scope: Scope, target: ResetTarget, *, execute: bool, export: bool
) -> Report:
    """`groups reset`. Raises ClientError."""
    await _check_inactive(cluster, group_id)
    committed = await _committed(cluster, group_id)
    partitions = target.offsets.keys() if target.goal is Goal.FILE else await _in_scope(cluster, scope, committed)
    if not partitions:
        raise ClientError(f"group {group_id} has no offsets to reset")
    known = await _known(cluster, partitions, committed, target)
    try:
        moves = plan(target, known)
    except ResetRefused as error:
        raise ClientError(str(error)) from None
    problems: list[str] = []
    if execute:
        outcome = await commit_offsets(cluster, group_id, {move.partition: move.offset for move in moves})
        problems = _problems(group_id, outcome)
    report = _reset_report(group_id, moves, execute=execute, problems=problems)
    if export:
        report.columns, report.rows = (
            (),
            [[f"{topic},{partition},{offset}"] for (topic, partition), _, offset, _ in moves],
        )
    return report


def _reset_report(group_id: str, moves: Sequence[Move], *, execute: bool, problems: list[str]) -> Report:
    remarks = [move.warning for move in moves if move.warning]
    if not execute:
        remarks.append("nothing was changed: this was a dry run, --execute does it")
    return Report(
        document={
            "group": group_id,
            "executed": execute,
            "partitions": [
                {
                    "topic": move.partition.topic,
                    "partition": move.partition.partition,
                    "committed_offset": move.committed,
                    "new_offset": move.offset,
                    "warning": move.warning,
                }
                for move in moves
            ],
        },
        columns=("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        rows=[(group_id, *move.partition, move.committed, move.offset) for move in moves],
        remarks=remarks,
        problems=problems,
    )


async def _check_inactive(cluster: Cluster, group_id: str) -> None:
    """Refuse a group with members. An unknown group is accepted: the commit creates it."""
    group = (await describe_groups(cluster, [group_id]))[group_id]
    if isinstance(group, Refusal):
        if group.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise ClientError(f"group {group_id}: {group}")
    elif group.state not in _INACTIVE:
        raise ClientError(
            f"offsets can only be reset if the group {group_id} is inactive, but the current state is {group.state}"
        )


async def _committed(cluster: Cluster, group_id: str) -> CommittedOffsets:
    committed = (await committed_offsets(cluster, [group_id]))[group_id]
    if isinstance(committed, Refusal):
        raise ClientError(f"group {group_id}: {committed}")
    return committed


async def _in_scope(cluster: Cluster, scope: Scope, committed: CommittedOffsets) -> set[TopicPartition]:
    if scope.has_all_committed:
        return set(committed)
    chosen = {one for partitions in scope.topics.values() for one in partitions}
    whole_topics = [topic for topic, partitions in scope.topics.items() if not partitions]
    if whole_topics:
        for topic, found in (await partitions_of(cluster, whole_topics)).items():
            if isinstance(found, Refusal):
                raise ClientError(f"{topic}: {found}")
            chosen.update(found)
    return chosen


async def _known(
    cluster: Cluster, partitions: Collection[TopicPartition], committed: CommittedOffsets, target: ResetTarget
) -> dict[TopicPartition, Known]:
    starts = _all_known(await offsets_at(cluster, partitions, EARLIEST))
    ends = _all_known(await offsets_at(cluster, partitions, LATEST))
    at_time = _all_known(await offsets_at(cluster, partitions, target.number)) if target.goal is Goal.TIME else {}
    return {
        one: Known(
            committed[one].offset if one in committed else None,
            starts[one],
            ends[one],
            None if at_time.get(one) == NO_OFFSET else at_time.get(one),
        )
        for one in partitions
    }


def _all_known(offsets: Mapping[TopicPartition, int | Refusal]) -> dict[TopicPartition, int]:
    known: dict[TopicPartition, int] = {}
    for one, offset in offsets.items():
        if isinstance(offset, Refusal):
            raise ClientError(f"{one}: {offset}")
        known[one] = offset
    return known


async def report_delete_groups(cluster: Cluster, group_ids: Collection[str]) -> Report:
    """`groups delete GROUP...`."""
    answers = sorted((await delete_groups(cluster, group_ids)).items())
    return Report(
        document=[{"group": name, "deleted": not answer, "error": answer and str(answer)} for name, answer in answers],
        columns=("GROUP", "RESULT"),
        rows=[(name, answer or "deleted") for name, answer in answers],
        problems=[f"group {name}: {answer}" for name, answer in answers if answer],
    )


async def report_delete_offsets(
    cluster: Cluster, group_id: str, topics: Mapping[str, Sequence[TopicPartition]]
) -> Report:
    """`groups delete GROUP --topic …`.

    A topic without partitions means all its committed offsets, even if it is gone.
    """
    committed = await _committed(cluster, group_id)
    whole_topics = {topic for topic, partitions in topics.items() if not partitions}
    chosen = {one for partitions in topics.values() for one in partitions} | {
        one for one in committed if one.topic in whole_topics
    }
    if not chosen:
        raise ClientError(f"group {group_id} has no offsets of {', '.join(topics)}")
    outcome = await delete_offsets(cluster, group_id, chosen)
    results = dict.fromkeys(sorted(chosen), outcome) if isinstance(outcome, Refusal) else outcome
    return Report(
        document=[
            {"topic": topic, "partition": partition, "deleted": not answer, "error": answer and str(answer)}
            for (topic, partition), answer in results.items()
        ],
        columns=("TOPIC", "PARTITION", "RESULT"),
        rows=[(*one, answer or "deleted") for one, answer in results.items()],
        problems=_problems(group_id, outcome),
    )


def _problems(group_id: str, outcome: OffsetResults | Refusal) -> list[str]:
    if isinstance(outcome, Refusal):
        return [f"group {group_id}: {outcome}"]
    return [f"group {group_id}: {one}: {answer}" for one, answer in outcome.items() if answer]
