"""Transactions in the metrics: numbers, ages, and hanging ones."""

from __future__ import annotations

import json
from typing import Any

import trio

from kafkawire.http.tests.test_metrics import scraped
from kafkawire.http.transaction_metrics import LATE_BUFFER_MS
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import OpenBroker, open_broker
from kafkawire.tests.test_transactions import FEW, Producer, connected
from testkit.asgi import get_response

LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
TIMEOUT_S = 900


async def values(opened: OpenBroker) -> dict[str, Any]:
    found = await scraped(opened.broker.http_app(LoopWatch()))
    metrics: dict[str, Any] = {name: samples[0][1] for name, samples in found.items() if len(samples) == 1}
    metrics["states"] = {labels["state"]: value for labels, value in found["kafkawire_transactional_ids"] if value}
    metrics["lags"] = {
        (labels["topic"], labels["partition"]): value
        for labels, value in found["kafka_cluster_partition_laststableoffsetlag"]
        if value
    }
    return metrics


async def health(opened: OpenBroker) -> tuple[int, list[str]]:
    status, body = await get_response(opened.broker.http_app(LoopWatch()), "/health/cluster")
    reasons: list[str] = json.loads(body)["reasons"]
    return status, reasons


async def test_transactions_of_producers_are_counted() -> None:
    async with open_broker(**FEW) as opened:
        client = await connected(opened)
        producer, idle = Producer(client, "busy"), Producer(client, "idle")
        await producer.initialise()
        await idle.initialise()
        for is_commit in (True, True, False):
            await producer.transact(b"v", is_commit=is_commit)
        await producer.add(0)
        await producer.produce()
        await producer.produce()
        await trio.sleep(7)
        metrics = await values(opened)
        assert metrics["states"] == {"Ongoing": 1, "Empty": 1}
        assert metrics["lags"] == {("t", "0"): 2}
        counted = [metrics[f"kafkawire_transactions_{one}_total"] for one in ("begun", "committed", "aborted")]
        assert counted == [4, 2, 1]
        assert metrics["kafkawire_transaction_oldest_seconds"] == 7
        assert metrics["kafkawire_transaction_markers_refused_total"] == 0
        await producer.end()
        await trio.sleep(1)
        metrics = await values(opened)
        assert metrics["kafkawire_transaction_oldest_seconds"] == 0
        assert metrics["lags"] == {}


async def test_a_transaction_that_takes_too_long_is_counted() -> None:
    async with open_broker(**FEW) as opened:
        producer = Producer(await connected(opened))
        await producer.initialise(timeout_ms=5_000)
        await producer.add(0)
        await trio.sleep(20)
        metrics = await values(opened)
        assert metrics["kafkawire_transactions_timed_out_total"] == 1
        assert metrics["kafkawire_transactions_aborted_total"] == 1


async def test_a_hanging_transaction_is_counted_and_makes_the_cluster_unhealthy() -> None:
    """No coordinator knows the transaction, so it stays open."""
    async with open_broker(transaction_partition_verification_enable="false", **FEW) as opened:
        hanging = Producer(await connected(opened))
        hanging.identity = (4_711, 0)
        await hanging.produce()
        await trio.sleep(TIMEOUT_S + LATE_BUFFER_MS / 1000)
        assert (await values(opened))[LATE] == 0
        assert (await health(opened))[0] == 200
        await trio.sleep(60)
        assert (await values(opened))[LATE] == 1
        assert await health(opened) == (503, ["t-0 has a transaction that hangs, silent for 21 minutes"])
