"""The object store that the configuration names, and the reasons that stop a start."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from engine.files.io_workers import LoopPool, Workers
from kafkawire.adapters.tier import open_object_store
from kafkawire.broker import StartError
from kafkawire.config.broker_config import Config, load
from kafkawire.config.tests.test_tier_enforced import create_tiered
from kafkawire.testing import MemoryDeps, open_broker
from tiering.object_store import Content
from tiering.ownership import take_over
from tiering.stores.directory import DirectoryStore
from tiering.stores.memory import HEALTHY, Fault, Operation
from tiering.stores.s3 import S3Store

if TYPE_CHECKING:
    from pathlib import Path

enforces = pytest.mark.enforces


def config(**properties: str) -> Config:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return load({"remote.log.storage.system.enable": "true", **given})[0]


def s3(**properties: str) -> S3Store:
    given = {"tier_store": "s3://bucket/lake", "tier_s3_access_key": "me", "tier_s3_secret_key": "word", **properties}
    store = open_object_store(config(**given), Workers(LoopPool(), [0]), random.Random(1))
    assert isinstance(store, S3Store)
    return store


async def test_a_directory(tmp_path: Path) -> None:
    store = open_object_store(config(tier_store=f"file://{tmp_path}/tier"), Workers(LoopPool(), [0]), random.Random(1))
    assert isinstance(store, DirectoryStore)
    await store.prepare()
    await store.put("a/b", Content.of(b"x"))
    assert (tmp_path / "tier" / "a" / "b").read_bytes() == b"x"


@enforces("tier.s3.endpoint")
@enforces("tier.s3.region")
def test_which_server_is_asked() -> None:
    store = s3(tier_s3_endpoint="http://127.0.0.1:9000/", tier_s3_region="eu-west-3")
    assert store.options.endpoint == "http://127.0.0.1:9000"
    signed = store._signed("GET", "http://127.0.0.1:9000/bucket/a", {})
    assert "/eu-west-3/s3/" in signed["Authorization"]
    assert s3(tier_s3_region="eu-west-3").options.endpoint == "https://s3.eu-west-3.amazonaws.com"


@enforces("tier.s3.access.key")
@enforces("tier.s3.secret.key")
def test_s3_credentials_come_from_the_config_and_are_not_shown_in_repr() -> None:
    given = s3().options.credentials.retrieve()
    assert (given.access_key, given.secret_key) == ("me", "word")
    assert "word" not in repr(s3().options)


def test_s3_credentials_may_come_from_environment_or_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = filed\naws_secret_access_key = word\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert s3(tier_s3_access_key="", tier_s3_secret_key="").options.credentials.retrieve().access_key == "filed"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "named")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "word")
    assert s3(tier_s3_access_key="", tier_s3_secret_key="").options.credentials.retrieve().access_key == "named"


TIER = {"remote_log_storage_system_enable": "true", "tier_store": "s3://bucket"}


async def refused(deps: MemoryDeps) -> str:
    with pytest.RaisesGroup(StartError) as group:
        async with open_broker(deps, **TIER):
            raise AssertionError("it has started")
    return str(group.value.exceptions[0])


async def test_a_store_that_refuses_stops_the_start() -> None:
    deps = MemoryDeps()
    deps.objects.fault = lambda _operation, _key: Fault(is_refused=True)
    assert (await refused(deps)).startswith("tier.store: the store refuses: put probe/")


async def test_a_store_that_two_leaders_cannot_share_stops_the_start() -> None:
    deps = MemoryDeps()
    put = deps.objects.put

    async def put_unconditionally(key: str, content: Content, *, if_absent: bool = False) -> None:
        await put(key, content)

    deps.objects.put = put_unconditionally  # type: ignore[method-assign]
    assert "ignores If-None-Match" in await refused(deps)


async def test_a_store_that_is_away_does_not_stop_the_start() -> None:
    deps = MemoryDeps()
    deps.objects.fault = lambda _operation, _key: Fault(is_lost=True)
    async with open_broker(deps, **TIER):
        deps.objects.fault = lambda _operation, _key: HEALTHY
    assert deps.objects.requests[Operation.PUT] == 1


async def test_a_cache_that_cannot_be_made_stops_the_start() -> None:
    deps = MemoryDeps()
    deps.filesystem.open("/taken", create=True)
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match=r"^tier\.cache\.dir: /taken/cache")):
        async with open_broker(deps, **TIER, tier_cache_dir="/taken/cache"):
            raise AssertionError("it has started")


async def test_a_tier_that_has_something_cannot_be_left() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **TIER) as opened:
        await create_tiered(opened.connect(), "orders")
    elsewhere = {**TIER, "tier_store": "s3://other"}
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match="tier.store is s3://other, and the segments of")):
        async with open_broker(deps, **elsewhere):
            raise AssertionError("it has started")
    with pytest.RaisesGroup(
        pytest.RaisesExc(StartError, match=r"remote\.storage\.enable=true have to be deleted .*orders")
    ):
        async with open_broker(deps):
            raise AssertionError("it has started")
    async with open_broker(deps, **TIER):
        pass


async def test_a_tier_that_has_nothing_can_be_left() -> None:
    deps = MemoryDeps()
    for properties in (TIER, {**TIER, "tier_store": "s3://other"}, {}, TIER):
        async with open_broker(deps, **properties):
            pass


async def test_a_cluster_that_was_restored_elsewhere_does_not_start() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **TIER) as opened:
        cluster_id = opened.broker.coordinator.image.cluster_id
    await take_over(deps.objects, "", cluster_id, 1, 0)
    assert "the cluster was restored from there" in await refused(deps)
