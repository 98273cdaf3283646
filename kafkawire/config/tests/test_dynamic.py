"""Changes of keys at run time: effects at once, and after a restart."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from coordinator.errors import InvalidTopicRequest
from kafkawire.config.tests.test_enforced import create, is_closed, produce, segments, syncs
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.testing import EPOCH_MS, MemoryDeps, OpenBroker, open_broker

enforces = pytest.mark.enforces
MIB = 1024 * 1024


async def configure(opened: OpenBroker, own: Mapping[str, str], of_all: Mapping[str, str] | None = None) -> None:
    """Set the run-time configs, of broker 1 and of all brokers."""
    for broker, configs in (("1", own), (CLUSTER_DEFAULT, of_all or {})):
        changes = [ConfigChange(ConfigOperation.SET, key, value) for key, value in configs.items()]
        await opened.broker.coordinator.alter_broker_configs(broker, changes, replace=True)


@enforces("message.max.bytes")
async def test_largest_batch_of_topics_that_set_none() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client, bytes(200))).error_code == 0
        await configure(opened, {}, {"message.max.bytes": "200"})
        assert (await produce(client, bytes(200))).error_code == 10
        await configure(opened, {"message.max.bytes": "2000"}, {"message.max.bytes": "200"})
        assert (await produce(client, bytes(200))).error_code == 0
        await configure(opened, {})
        assert (await produce(client, bytes(2000))).error_code == 0


async def test_a_topic_config_precedes_a_changed_broker_config() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client, max_message_bytes="1000")
        await configure(opened, {"message.max.bytes": "100"})
        assert (await produce(client, bytes(200))).error_code == 0


async def test_a_changed_broker_config_holds_for_topics_created_later() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await configure(opened, {"message.max.bytes": "200"})
        await create(client)
        assert (await produce(client, bytes(200))).error_code == 10


@enforces("log.segment.bytes")
async def test_size_of_segments() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client, bytes(700_000))).error_code == 0
        await configure(opened, {"log.segment.bytes": str(MIB)})
        assert (await produce(client, bytes(700_000))).error_code == 0
        assert segments(deps) == 2


@enforces("log.roll.ms")
async def test_age_of_segments_goes_before_hours_in_the_file() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, log_roll_hours="9") as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client, timestamp_ms=EPOCH_MS - 20)).error_code == 0
        await configure(opened, {"log.roll.ms": "10"})
        assert (await produce(client, timestamp_ms=EPOCH_MS)).error_code == 0
        assert segments(deps) == 2


@enforces("log.flush.policy")
async def test_when_topics_are_flushed() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        client = opened.connect()
        await create(client)
        await configure(opened, {"log.flush.policy": "async"})
        before = syncs(deps)
        assert (await produce(client)).error_code == 0
        assert syncs(deps) == before


@enforces("log.message.timestamp.type")
@enforces("log.message.timestamp.before.max.ms")
async def test_timestamps() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client)
        await configure(opened, {"log.message.timestamp.before.max.ms": "1000"})
        assert (await produce(client, timestamp_ms=EPOCH_MS - 60_000)).error_code == 32
        await configure(opened, {"log.message.timestamp.type": "LogAppendTime"})
        assert (await produce(client, timestamp_ms=1)).log_append_time_ms >= EPOCH_MS


@enforces("log.retention.ms")
@enforces("log.retention.bytes")
@pytest.mark.parametrize("key", ["log.retention.ms", "log.retention.bytes"])
async def test_how_long_and_how_much_is_kept(key: str) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, log_index_size_max_bytes="4") as opened:
        client = opened.connect()
        await create(client)
        for _ in range(3):
            assert (await produce(client)).error_code == 0
        await trio.sleep(301)
        assert segments(deps) == 3
        await configure(opened, {}, {key: "1"})
        await trio.sleep(301)
        assert segments(deps) == 1


@enforces("max.connections")
@enforces("max.connections.per.ip")
@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
async def test_how_many_may_be_connected(key: str) -> None:
    async with open_broker() as opened:
        first = opened.connect()
        await first.call(ApiVersionsRequest(), 0)
        await configure(opened, {key: "1"})
        assert await is_closed(opened.connect())
        await first.call(ApiVersionsRequest(), 0)
        await configure(opened, {})
        await opened.connect().call(ApiVersionsRequest(), 0)


@enforces("producer.id.expiration.ms")
async def test_when_a_silent_producer_is_forgotten() -> None:
    async with open_broker(producer_id_expiration_check_interval_ms="10000") as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client, producer=(7, 0, 0))).error_code == 0
        await configure(opened, {"producer.id.expiration.ms": "60000"})
        await trio.sleep(71)
        assert (await produce(client, producer=(7, 0, 5))).error_code == 0


async def test_an_invalid_change_is_refused_and_changes_nothing() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client)
        for bad in ({"log.dirs": "/elsewhere"}, {"message.max.bytes": "many"}):
            with pytest.raises(InvalidTopicRequest):
                await configure(opened, {**bad, "max.connections": "0"})
        assert (await produce(client)).error_code == 0
        await opened.connect().call(ApiVersionsRequest(), 0)


async def test_dynamic_configs_survive_a_power_cut() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        await create(opened.connect())
        await configure(opened, {"max.connections": "1"}, {"message.max.bytes": "200"})
        deps.power_cut()
    async with open_broker(deps) as opened:
        client = opened.connect()
        assert (await produce(client)).error_code == 0
        assert (await produce(client, bytes(200))).error_code == 10
        assert await is_closed(opened.connect())
