"""`kafkawire transactions list | describe | abort`: requests to the cluster, and reports of the answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kafkawire.cli.common.cluster_command import Report, shown_time
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import ClientError, Refusal
from kafkawire.client.partitions import TopicPartition, by_topic
from kafkawire.client.transactions import (
    OpenTransaction,
    Transaction,
    abort_transaction,
    describe_transactions,
    list_transactions,
    open_transactions,
)

# A transaction in another state is over. It still has a start time, but does not run.
_RUNNING: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_TRANSACTION_COLUMNS: Final = (
    "TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "PRODUCER-EPOCH", "TIMEOUT-MS", "STARTED", "RUNNING-MS", "PARTITIONS",
)  # fmt: skip
_OPEN_COLUMNS: Final = (
    "TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "START-OFFSET", "LAST-TIMESTAMP", "RESULT",
)  # fmt: skip


async def report_list(
    cluster: Cluster, states: Sequence[str], longer_than_ms: int | None, pattern: str | None
) -> Report:
    """`transactions list`."""
    listed = await list_transactions(cluster, states, longer_than_ms, pattern)
    return Report(
        document=[one._asdict() for one in listed],
        columns=("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID"),
        rows=listed,
    )


async def report_describe(cluster: Cluster, transactional_ids: Collection[str], now_ms: int) -> Report:
    """`transactions describe`: a row for each transactional id."""
    answers = sorted((await describe_transactions(cluster, transactional_ids)).items())
    found = [one for _, one in answers if not isinstance(one, Refusal)]
    return Report(
        document=[_transaction_document(one, now_ms) for one in found],
        columns=_TRANSACTION_COLUMNS,
        rows=[_transaction_row(one, now_ms) for one in found],
        problems=[f"transactional id {name}: {one}" for name, one in answers if isinstance(one, Refusal)],
    )


def _running_ms(one: Transaction, now_ms: int) -> int | None:
    """Running time in ms, not below 0 if the broker's clock is ahead; None if no transaction runs."""
    return max(0, now_ms - one.started_ms) if one.state in _RUNNING and one.started_ms is not None else None


def _transaction_document(one: Transaction, now_ms: int) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started_ms": one.started_ms,
        "running_ms": _running_ms(one, now_ms),
        "coordinator": str(one.coordinator),
        "partitions": [each._asdict() for each in one.partitions],
    }


def _transaction_row(one: Transaction, now_ms: int) -> list[object]:
    partitions = [
        f"{topic}:{','.join(str(each.partition) for each in some)}" for topic, some in by_topic(one.partitions)
    ]
    return [
        one.transactional_id,
        one.state,
        one.producer_id,
        one.producer_epoch,
        one.timeout_ms,
        shown_time(one.started_ms),
        _running_ms(one, now_ms),
        ";".join(partitions) or None,
    ]


async def report_open(cluster: Cluster, partition: TopicPartition) -> Report:
    """`transactions abort` without a name: the open transactions of the partition. Raises ClientError."""
    found = await _open(cluster, partition)
    remark = (
        "nothing was changed: --producer-id or --start-offset says which to abort"
        if found
        else f"{partition} has no open transaction"
    )
    return Report(
        document=[_open_document(one, aborted=False) for one in found],
        columns=_OPEN_COLUMNS,
        rows=[_open_row(one, "open") for one in found],
        remarks=[remark],
    )


async def report_abort(
    cluster: Cluster, partition: TopicPartition, producer_id: int | None, start_offset: int | None
) -> Report:
    """`transactions abort`: abort the transaction of a producer, or with that start offset. Raises ClientError."""
    found = await _open(cluster, partition)
    wanted = [one for one in found if producer_id == one.producer_id or start_offset == one.start_offset]
    if not wanted:
        criterion = f"of producer {producer_id}" if start_offset is None else f"from offset {start_offset} on"
        raise ClientError(f"{partition} has no open transaction {criterion}")
    one = wanted[0]
    refused = await abort_transaction(cluster, one)
    return Report(
        document=[_open_document(one, aborted=refused is None, error=refused)],
        columns=_OPEN_COLUMNS,
        rows=[_open_row(one, str(refused or "aborted"))],
        problems=[f"{partition}: {refused}"] if refused else [],
    )


async def _open(cluster: Cluster, partition: TopicPartition) -> list[OpenTransaction]:
    found = await open_transactions(cluster, partition)
    if isinstance(found, Refusal):
        raise ClientError(f"{partition}: {found}")
    return found


def _open_document(one: OpenTransaction, *, aborted: bool, error: Refusal | None = None) -> dict[str, object]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "start_offset": one.start_offset,
        "last_timestamp_ms": one.last_timestamp_ms,
        "aborted": aborted,
        "error": error and str(error),
    }


def _open_row(one: OpenTransaction, result: str) -> list[object]:
    return [
        *one.partition,
        one.producer_id,
        one.producer_epoch,
        one.start_offset,
        shown_time(one.last_timestamp_ms),
        result,
    ]
