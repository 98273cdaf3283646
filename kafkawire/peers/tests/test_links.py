"""Peer connections to real brokers, and to brokers that are away, silent or restarted, or to other servers
(RULES K23)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from coordinator.api import Future
from kafkawire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkawire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkawire.peers.connection import PeerLimits
from kafkawire.peers.errors import LinkFailed, SentBy
from kafkawire.peers.tests.peers import World, broker_info, open_peer, open_world
from kafkawire.server.memory_transport import MemoryListener
from kafkawire.wire.message import Message

PEER = 2


def markers(producer_id: int) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=producer_id, topics=topics)])


def ask(world: World, producer_id: int = 7, purpose: str = "control") -> Future[Message]:
    return world.links.call(PEER, markers(producer_id), 2, purpose=purpose)


def ask_for_long(world: World) -> Future[Message]:
    """A request that is answered when the test says so."""
    return world.links.call(PEER, EndTxnRequest(transactional_id="x"), 4, purpose="control")


async def settled(one: Future[Message]) -> Any:
    """The reply. Raises LinkFailed."""
    if not one.is_settled:
        event = trio.Event()
        one.call_when_settled(event.set)
        await event.wait()
    return one.result()


async def lost(one: Future[Message]) -> LinkFailed:
    with pytest.raises(LinkFailed) as failure:
        await settled(one)
    return failure.value


def written(world: World) -> list[int]:
    """The producers of the markers that the other broker has written, in their order."""
    return [marker.producer_id for marker, _ in world.peers[PEER].markers.written]


def link_of(failure: LinkFailed) -> SentBy:
    assert failure.sent_by is not None
    return failure.sent_by


async def test_requests_are_answered_over_one_connection_in_the_order_of_asking() -> None:
    async with open_world() as world, open_peer(world, PEER):
        asked = [ask(world, one) for one in range(20)]
        for one in asked:
            assert isinstance(await settled(one), WriteTxnMarkersResponse)
        assert written(world) == list(range(20))
        assert len(world.network.opened) == 1


async def test_requests_of_another_purpose_use_another_peer_connection() -> None:
    async with open_world() as world, open_peer(world, PEER):
        await settled(ask(world, purpose="control"))
        await settled(ask(world, purpose="fetch-/data"))
        await settled(ask(world, purpose="control"))
        assert len(world.network.opened) == 2
        assert len(written(world)) == 3


async def test_a_broker_that_is_away_is_not_asked() -> None:
    async with open_world() as world:
        world.cluster.lose(PEER)
        assert (await lost(ask(world))).sent_by is None
        assert world.network.attempts == 0


async def test_an_unreachable_broker_is_tried_again_with_pauses() -> None:
    async with open_world() as world:
        began_s = trio.current_time()
        for _ in range(8):
            failure = await lost(ask(world))
            assert "Connection refused" in str(failure)
            assert failure.sent_by is None
        assert 1 < trio.current_time() - began_s < 6
        async with open_peer(world, PEER):
            await settled(ask(world))


async def test_requests_of_a_broker_with_a_wrong_secret_are_not_executed() -> None:
    async with open_world(secret=b"another secret of all") as world, open_peer(world, PEER):
        failure = await lost(ask(world))
        assert str(failure) == "SASL_AUTHENTICATION_FAILED"
        assert failure.sent_by is None
        assert written(world) == []


async def test_a_listener_that_says_nothing_is_given_up() -> None:
    async with open_world() as world:
        world.network.listeners[PEER] = MemoryListener()
        failure = await lost(ask(world))
        assert "no link within 10000 ms" in str(failure)
        assert trio.current_time() >= 10


@pytest.mark.parametrize("answer", [b"\0\0\0\3abc", b"\x7f\0\0\0", b"\0\0\0\6\0\0\0\0\xff\xff", b"HTTP/1.1 400"])
async def test_a_listener_that_speaks_something_else_is_no_broker(answer: bytes) -> None:
    async with open_world() as world:
        listener = world.network.listeners[PEER] = MemoryListener()
        asked = ask(world)
        accepted = await listener.accept()
        accepted.transport.send([answer])
        assert (await lost(asked)).sent_by is None


async def test_a_request_that_is_not_answered_in_time_ends_the_link_and_the_next_has_a_greater_number() -> None:
    async with open_world() as world, open_peer(world, PEER):
        silent, behind = ask_for_long(world), ask(world)
        first = link_of(await lost(silent))
        assert trio.current_time() == pytest.approx(30, abs=1)
        assert link_of(await lost(behind)) == first
        assert not world.links.is_over(first)
        silent = ask_for_long(world)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
        assert world.links.is_over(first)
        second = link_of(await lost(silent))
        assert second.number > first.number


async def test_a_link_that_is_busy_for_long_stays() -> None:
    async with open_world() as world, open_peer(world, PEER) as peer:
        for _ in range(4):
            slow = ask_for_long(world)
            await trio.sleep(25)
            peer.transactions.asked[-1].settle((7, 1))
            assert isinstance(await settled(slow), EndTxnResponse)
            await trio.sleep(100)
        assert len(world.network.opened) == 1


async def test_a_closed_connection_fails_its_request_with_the_id_of_the_link() -> None:
    async with open_world() as world, open_peer(world, PEER):
        asked = ask_for_long(world)
        await trio.sleep(1)
        world.network.opened[0].inner.close()
        sent_by = link_of(await lost(asked))
        assert (sent_by.broker_id, sent_by.purpose) == (PEER, "control")
        await settled(ask(world))
        assert world.links.is_over(sent_by)


async def test_a_broker_that_re_registers_ends_the_peer_connection() -> None:
    async with open_world() as world, open_peer(world, PEER) as peer:
        asked = ask_for_long(world)
        await trio.sleep(1)
        peer.interfaces.links.end_all()
        world.cluster.register(broker_info(PEER, 2))
        sent_by = link_of(await lost(asked))
        assert trio.current_time() < 2
        assert world.links.is_over(sent_by)
        await settled(ask(world))


async def test_a_broker_that_is_lost_ends_the_link() -> None:
    async with open_world() as world, open_peer(world, PEER):
        asked = ask_for_long(world)
        await trio.sleep(1)
        world.cluster.lose(PEER)
        assert world.links.is_over(link_of(await lost(asked)))
        assert trio.current_time() < 2


async def test_links_are_of_this_registration_of_our_own() -> None:
    async with open_world() as world, open_peer(world, PEER):
        asked = ask_for_long(world)
        await trio.sleep(1)
        world.epoch = 2
        world.cluster.register(broker_info(1, 2))
        assert link_of(await lost(asked)).number.broker_epoch == 1
        await settled(ask(world))


async def test_a_link_is_renewed_though_there_is_nothing_to_ask() -> None:
    async with open_world() as world, open_peer(world, PEER):
        asked = ask_for_long(world)
        await trio.sleep(1)
        world.network.opened[0].inner.close()
        sent_by = link_of(await lost(asked))
        await trio.sleep(5)
        assert not world.links.is_over(sent_by)
        world.links.renew(sent_by)
        await trio.sleep(1)
        assert world.links.is_over(sent_by)
        world.links.renew(sent_by)
        await trio.sleep(1)
        assert len(world.network.opened) == 2


async def test_the_queue_of_requests_for_a_broker_is_bounded() -> None:
    async with open_world(limits=PeerLimits(requests_max=2)) as world, open_peer(world, PEER):
        asked = [ask(world), ask(world), ask(world)]
        assert "2 requests wait" in str(await lost(asked[2]))
        for one in asked[:2]:
            await settled(one)


async def test_late_bytes_of_a_closed_connection_are_not_executed_after_a_newer_connection() -> None:
    async with open_world() as world, open_peer(world, PEER):
        await settled(ask(world, 1))
        (stream,) = world.network.opened
        stream.is_held = True
        late = ask(world, 2)
        await lost(late)  # there is no answer in time, and the connection is closed at our end
        await settled(ask(world, 3))
        await stream.arrive()
        await trio.sleep(1)
        assert written(world) == [1, 3]


async def test_late_bytes_of_a_closed_connection_are_executed_without_a_newer_connection() -> None:
    """Therefore no other broker may be asked before there is a newer connection."""
    async with open_world() as world, open_peer(world, PEER):
        await settled(ask(world, 1))
        (stream,) = world.network.opened
        stream.is_held = True
        await lost(ask(world, 2))
        await stream.arrive()
        await trio.sleep(1)
        assert written(world) == [1, 2]
