"""`kafkawire groups`: consumer groups of any Kafka cluster, their lag and their offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, TextIO

import click

from kafkawire.cli.common.cluster_command import Work, cluster_command, parsed
from kafkawire.cli.groups.offset_reset import (
    Goal,
    ResetTarget,
    merge_topics,
    parse_csv,
    parse_datetime_ms,
    parse_duration_ms,
    parse_topic,
)
from kafkawire.client.partitions import TopicPartition

STATES: Final = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling", "NotReady",
)  # fmt: skip
TYPES: Final = ("classic", "consumer", "share", "streams")

Topics = tuple[tuple[str, list[TopicPartition]], ...]


def parse_ago_ms(text: str) -> int:
    """The present time less a duration, in ms. Raises ValueError."""
    return max(0, time.time_ns() // 1_000_000 - parse_duration_ms(text))


TOPICS: Final = click.option(
    "--topic", "topics", multiple=True, callback=parsed(parse_topic), metavar="TOPIC[:PARTITION,...]",
    help="Topic, with or without partitions; may be repeated.",
)  # fmt: skip


@click.group("groups")
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only groups in this state.",
)
@click.option(
    "--type", "types", multiple=True, type=click.Choice(TYPES, case_sensitive=False), help="Only groups of this type."
)
@cluster_command
def list_groups(states: tuple[str, ...], types: tuple[str, ...]) -> Work:
    """List groups with their state and type."""
    from kafkawire.cli.groups import reports

    return partial(reports.report_list, states=states, types=types)


@command.command("describe")
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--all", "every", is_flag=True, help="All groups.")
@click.option(
    "--offsets/--members", default=True, show_default=True, help="Print a row for each partition, or for each member."
)
@cluster_command
def describe(groups: tuple[str, ...], every: bool, offsets: bool) -> Work:
    """Show the committed offsets and the lag of GROUPs, and the reader of each partition."""
    from kafkawire.cli.groups import reports

    if every == bool(groups):
        raise click.UsageError("name groups, or give --all")
    report = reports.report_offsets if offsets else reports.report_members
    return partial(report, group_ids=groups)


@command.command("lag")
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--max", "lag_max", type=click.IntRange(min=0), help="Exit with 1 if the lag of a group is greater.")
@cluster_command
def lag(groups: tuple[str, ...], lag_max: int | None) -> Work:
    """Show the lag of GROUPs, or of all groups, in records."""
    from kafkawire.cli.groups import reports

    return partial(reports.report_lag, group_ids=groups, lag_max=lag_max)


@command.command("reset")
@click.argument("group")
@TOPICS
@click.option("--all-topics", is_flag=True, help="Reset all topics with committed offsets of the group.")
@click.option(Goal.EARLIEST.value, is_flag=True, help="Reset to the start of the log.")
@click.option(Goal.LATEST.value, is_flag=True, help="Reset to the end of the log.")
@click.option(
    Goal.CURRENT.value, is_flag=True, help="Keep the committed offset; if there is none, reset to the end of the log."
)
@click.option(Goal.OFFSET.value, type=click.IntRange(min=0), help="Reset to this offset.")
@click.option(Goal.SHIFT.value, type=int, metavar="N", help="Move the offset by N; a negative N moves it back.")
@click.option(
    Goal.TIME.value, callback=parsed(parse_datetime_ms), help="Reset to the first record since a time: ISO 8601."
)
@click.option(
    "--by-duration", callback=parsed(parse_ago_ms), help="Reset to the first record since a duration ago: PT1H, P7D."
)
@click.option(
    Goal.FILE.value,
    type=click.File(encoding="utf-8"),
    help="Reset to offsets in a file: rows of topic,partition,offset.",
)
@click.option("--execute/--dry-run", default=False, show_default=True, help="Carry the reset out, or only show it.")
@click.option("--export", is_flag=True, help="Print the new offsets as rows for --from-file.")
@cluster_command
def reset(
    group: str, topics: Topics, all_topics: bool, execute: bool, export: bool, from_file: TextIO | None, **goals: Any
) -> Work:
    """Reset the committed offsets of GROUP, which must have no members."""
    from kafkawire.cli.groups import changes

    targets = [ResetTarget(Goal(option), number) for option, number in _given(goals)]
    if from_file is not None:
        targets.append(ResetTarget(Goal.FILE, offsets=_offsets_of(from_file, group)))
    if len(targets) != 1:
        raise click.UsageError(f"give one of {', '.join(goal.value for goal in Goal)}, --by-duration")
    if [bool(topics), all_topics, from_file is not None].count(True) != 1:
        raise click.UsageError("give --topic or --all-topics, and neither with --from-file")
    scope = changes.Scope(merge_topics(topics), has_all_committed=all_topics)
    return partial(changes.report_reset, group_id=group, scope=scope, target=targets[0], execute=execute, export=export)


def _given(goals: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The given options and their numbers."""
    for name, value in goals.items():
        if value is not None and value is not False:
            option = Goal.TIME.value if name == "by_duration" else f"--{name.replace('_', '-')}"
            yield option, int(value)


def _offsets_of(file: TextIO, group_id: str) -> dict[TopicPartition, int]:
    try:
        return parse_csv(file, group_id)
    except ValueError as error:  # a file that is not UTF-8 raises one, too
        raise click.ClickException(f"{file.name}: {error}") from None


@command.command("delete")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@TOPICS
@cluster_command
def delete(groups: tuple[str, ...], topics: Topics) -> Work:
    """Delete GROUPs without members, or with --topic committed offsets of one GROUP."""
    from kafkawire.cli.groups import changes

    if not topics:
        return partial(changes.report_delete_groups, group_ids=groups)
    if len(groups) > 1:
        raise click.UsageError("--topic goes with one group")
    return partial(changes.report_delete_offsets, group_id=groups[0], topics=merge_topics(topics))
