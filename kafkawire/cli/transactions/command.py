"""`kafkawire transactions`: transactional ids of any Kafka cluster, and hanging transactions."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Final

import click

from kafkawire.cli.common.cluster_command import Work, cluster_command, parsed
from kafkawire.client.partitions import TopicPartition

STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence",
)  # fmt: skip


def parse_partition(text: str) -> TopicPartition:
    """Parse `topic:0`. Raises ValueError."""
    found = re.fullmatch(r"(?P<topic>[^:]+):(?P<number>\d{1,9})", text)
    if found is None:
        raise ValueError(f"{text!r} is not TOPIC:PARTITION")
    return TopicPartition(found["topic"], int(found["number"]))


@click.group("transactions")
def command() -> None:
    """List and describe transactions, and abort hanging ones."""


@command.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only transactions in this state.",
)
@click.option(
    "--longer-than-ms", type=click.IntRange(min=0), metavar="N", help="Only transactions that began more than N ms ago."
)
@click.option("--pattern", metavar="RE2", help="Only transactional ids that match this expression as a whole.")
@cluster_command
def list_transactions(states: tuple[str, ...], longer_than_ms: int | None, pattern: str | None) -> Work:
    """List transactional ids with their state and producer id."""
    from kafkawire.cli.transactions import reports

    return partial(reports.report_list, states=states, longer_than_ms=longer_than_ms, pattern=pattern)


@command.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="ID...")
@cluster_command
def describe(transactional_ids: tuple[str, ...]) -> Work:
    """Show the last transaction of each transactional ID: its running time and its partitions."""
    from kafkawire.cli.transactions import reports

    now_ms = time.time_ns() // 1_000_000
    return partial(reports.report_describe, transactional_ids=transactional_ids, now_ms=now_ms)


@command.command("abort")
@click.argument("where", metavar="TOPIC:PARTITION", callback=parsed(parse_partition))
@click.option("--producer-id", type=click.IntRange(min=0), metavar="N", help="Producer id of the transaction.")
@click.option(
    "--start-offset", type=click.IntRange(min=0), metavar="N", help="First offset of the transaction in this partition."
)
@cluster_command
def abort(where: TopicPartition, producer_id: int | None, start_offset: int | None) -> Work:
    """Abort a transaction in one partition. Without an option, show the open transactions there."""
    from kafkawire.cli.transactions import reports

    if producer_id is not None and start_offset is not None:
        raise click.UsageError("give --producer-id or --start-offset")
    if producer_id is None and start_offset is None:
        return partial(reports.report_open, partition=where)
    return partial(reports.report_abort, partition=where, producer_id=producer_id, start_offset=start_offset)
