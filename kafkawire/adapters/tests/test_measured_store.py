"""The latency of the metadata store, and the time since it last answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from coordinator.metadata_store.embedded import open_embedded
from coordinator.metadata_store.store import ConnectionLost, Create, NoNode
from coordinator.testing.fakes import FakeEnsemble, run_inline
from kafkawire.adapters.measured_store import MeasuredStore

if TYPE_CHECKING:
    from pathlib import Path


async def test_every_request_that_is_answered_counts_a_refused_one_too() -> None:
    store = MeasuredStore(FakeEnsemble().connect())
    await store.multi([Create("/a", b"1"), Create("/a/b", b"2")])
    await store.sync()
    assert (await store.get("/a")).value == b"1"
    assert await store.exists("/a")
    assert await store.children("/a") == ["b"]
    assert await store.children_of_many(["/a", "/x"]) == [["b"], []]
    assert [one and one.value for one in await store.read_many(["/a/b", "/x"])] == [b"2", None]
    assert {name: node.value for name, node in (await store.read_children("/a")).items()} == {"b": b"2"}
    with pytest.raises(NoNode):
        await store.get("/x")
    assert store.latency.count == 9


async def test_a_request_without_an_answer_is_no_latency_and_lets_the_age_grow() -> None:
    fake = FakeEnsemble().connect()
    store = MeasuredStore(fake)
    await store.sync()
    await trio.sleep(100)
    assert store.age_s == 0, "pings are answered"
    fake.silent = True
    await trio.sleep(7)
    assert store.age_s == pytest.approx(7)
    with pytest.raises(ConnectionLost):
        await store.sync()
    assert store.latency.count == 1
    assert store.age_s > 100, "the last request was answered so long ago"
    fake.silent = False
    await store.renew()
    await store.sync()
    assert (store.latency.count, store.age_s) == (2, 0)


async def test_a_store_in_this_process_has_no_session_and_no_age(tmp_path: Path) -> None:
    store = MeasuredStore(await open_embedded(tmp_path / "metadata", run_inline))
    await trio.sleep(100)
    assert (store.session, store.age_s) == (None, 0)
    await store.close()
