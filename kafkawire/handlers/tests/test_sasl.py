"""Authentication of brokers over the wire, and the execution of their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from coordinator.state.log import StateMarker
from coordinator.transactions.api import Partition
from kafkawire.fast_path import fast_paths
from kafkawire.handlers import API_TABLE
from kafkawire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkawire.messages.sasl_handshake import SaslHandshakeRequest
from kafkawire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkawire.requests.context import RequestContext, allow_all
from kafkawire.requests.dispatch import INLINE_ELEMENTS_MAX, Dispatcher
from kafkawire.security.accepted_links import AcceptedLinks, Receiver
from kafkawire.security.link_claim import LinkClaim, LinkNumber
from kafkawire.security.scram import MECHANISM, ScramClient, salted_by
from kafkawire.server.memory_transport import MemoryListener
from kafkawire.server.server import ServerLimits, serve
from kafkawire.testing import Client
from kafkawire.tests.harness import LISTENER, NODE_ID, Broker, open_handlers
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.connection_info import ConnectionInfo

SECRET = b"a secret of the brokers"
INCARNATION = bytes(range(16))
MARKERS = WriteTxnMarkersRequest(
    markers=[
        WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])]),
    ]
)
WRITTEN = (StateMarker(7, 0, 0, is_commit=False), Partition("t", 0))
NONE, MECHANISM_UNKNOWN, ILLEGAL, FAILED = 0, 33, 34, 58


def accepting(broker: Broker) -> AcceptedLinks:
    numbers = count()
    return AcceptedLinks(
        Receiver(
            broker_id=NODE_ID,
            listener_name=LISTENER,
            secret=SECRET,
            incarnation=lambda: INCARNATION,
            image=lambda: broker.cluster.image,
            random_bytes=lambda size: next(numbers).to_bytes(size, "big"),
        )
    )


@asynccontextmanager
async def open_broker() -> AsyncIterator[Broker]:
    async with open_handlers() as broker:
        yield broker.reconfigured(links=accepting(broker))


def connected(broker: Broker, listener: str = LISTENER) -> Broker:
    """The same broker over another connection."""
    return changed(broker, connection=ConnectionInfo(listener, "10.0.0.2", "10.0.0.1"))


def client_of(counter: int, secret: bytes = SECRET) -> ScramClient:
    claim = LinkClaim(2, "markers", LinkNumber(5, counter), NODE_ID, INCARNATION)
    return ScramClient(claim.user, salted_by(secret), "nonce", claim.extensions())


async def handshake(broker: Any, mechanism: str = MECHANISM, version: int = 1) -> Any:
    return await broker.ask(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(broker: Any, message: bytes, version: int = 2) -> Any:
    return await broker.ask(SaslAuthenticateRequest(auth_bytes=message), version)


async def prove(broker: Any, counter: int = 1, secret: bytes = SECRET) -> Any:
    """The last response of a handshake with this secret."""
    client = client_of(counter, secret)
    await handshake(broker)
    challenge = await authenticate(broker, client.first())
    answer = await authenticate(broker, client.final(bytes(challenge.auth_bytes)))
    if not answer.error_code:
        client.check(bytes(answer.auth_bytes))
    return answer


async def test_an_authenticated_broker_acts_for_the_cluster() -> None:
    async with open_broker() as real:
        broker = connected(real)
        assert (await prove(broker)).error_code == NONE
        assert broker.connection.principal == "Broker:2"
        await broker.ask(MARKERS, 2)
        assert broker.markers.written == [WRITTEN]


async def test_the_mechanism_is_the_one_there_is() -> None:
    async with open_broker() as real:
        broker = connected(real)
        response = await handshake(broker)
        assert (response.error_code, response.mechanisms) == (NONE, [MECHANISM])
        broker = connected(real)
        response = await handshake(broker, "PLAIN")
        assert (response.error_code, response.mechanisms) == (MECHANISM_UNKNOWN, [MECHANISM])
        with pytest.raises(ProtocolViolation, match="PLAIN"):
            await handshake(broker)


@pytest.mark.parametrize("version", [0, 1])
async def test_authentication_is_refused_on_another_listener_or_without_a_secret(version: int) -> None:
    async with open_handlers() as real:
        for broker in (real, connected(real.reconfigured(links=accepting(real)), "CLIENTS")):
            response = await handshake(broker, version=version)
            assert (response.error_code, response.mechanisms) == (ILLEGAL, [])
            answer = await authenticate(broker, b"n,,n=broker-2,r=nonce")
            assert (answer.error_code, answer.auth_bytes) == (ILLEGAL, b"")


async def test_a_proof_without_a_handshake_is_out_of_place() -> None:
    async with open_broker() as real:
        broker = connected(real)
        assert (await authenticate(broker, client_of(1).first())).error_code == ILLEGAL
        assert (await prove(broker)).error_code == NONE  # the connection goes on
        assert (await authenticate(broker, client_of(2).first())).error_code == ILLEGAL
        assert (await handshake(broker)).error_code == ILLEGAL


@pytest.mark.parametrize("version", range(3))
async def test_a_failed_authentication_returns_an_error_and_allows_no_requests(version: int) -> None:
    async with open_broker() as real:
        broker = connected(real)
        await handshake(broker)
        answer = await authenticate(broker, b"nonsense", version)
        assert answer.error_code == FAILED
        assert "invalid credentials" in answer.error_message
        with pytest.raises(ProtocolViolation, match="not authenticated"):
            await broker.ask(MARKERS, 2)
        assert broker.markers.written == []


async def test_requests_of_an_older_peer_connection_are_not_executed() -> None:
    async with open_broker() as real:
        older, newer = connected(real), connected(real)
        await prove(older, 1)
        await prove(newer, 2)
        with pytest.raises(ProtocolViolation, match="newer link"):
            await older.ask(MARKERS, 2)
        assert real.markers.written == []
        await newer.ask(MARKERS, 2)
        assert real.markers.written == [WRITTEN]


async def test_a_request_decoded_while_a_newer_peer_connection_opens_is_not_executed() -> None:
    large = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=7,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[*range(INLINE_ELEMENTS_MAX + 1)])],
            )
        ]
    )
    async with open_broker() as real:
        older, newer = connected(real), connected(real)
        await prove(older, 1)
        started = older.dispatch(large, 2)
        await prove(newer, 2)
        work = started.begin()
        assert work is not None
        await work
        with pytest.raises(ProtocolViolation, match="newer link"):
            started.reply()
        assert real.markers.written == []


@dataclass
class Asked:
    """An authorizer that records principals, and allows everything."""

    principals: list[str]

    def __call__(self, principal: str, *_others: Any) -> bool:
        self.principals.append(principal)
        return True


async def test_the_fast_path_checks_the_principal_and_refuses_an_older_peer_connection() -> None:
    async with open_broker() as real:
        asked = Asked([])
        interfaces = changed(real.interfaces, authorizer=asked)
        real.groups.answers["heartbeat"] = None
        dispatcher = Dispatcher(interfaces, API_TABLE, fast_paths(interfaces, API_TABLE))
        older, newer = (connected(changed(real, dispatcher=dispatcher)) for _ in range(2))
        beat = HeartbeatRequest(group_id="g", member_id="m")
        await older.ask(beat, 4)
        await prove(older, 1)
        await older.ask(beat, 4)
        assert asked.principals == ["User:ANONYMOUS", "Broker:2"]
        await prove(newer, 2)
        with pytest.raises(ProtocolViolation):
            await older.ask(beat, 4)
        assert len(real.groups.calls) == 2


@pytest.mark.parametrize(
    ("principal", "is_one"),
    [("Broker:2", True), ("User:broker-2", False), ("User:Broker:2", False), ("User:2", False), ("Broker:3", False)],
)
def test_user_named_broker_2(principal: str, is_one: bool) -> None:
    """A certificate may have any name; it does not make the client a broker."""
    authorizer: Any = SimpleNamespace(authorizer=allow_all)
    context = RequestContext(authorizer, ConnectionInfo(LISTENER, "h", "h"), 1, 12, 0, None, (), 0.0, principal)
    assert context.is_broker(2) is is_one
    assert context.is_of_any_broker is principal.startswith("Broker:")


# Over a real connection


@dataclass
class Asking:
    """A client of the server."""

    client: Client

    async def ask(self, request: Any, version: int) -> Any:
        return await self.client.call(request, version)


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[MemoryListener]:
    listener, stop = MemoryListener(), trio.Event()
    named: dict[str, Sequence[MemoryListener]] = {LISTENER: [listener]}
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, named, broker.dispatcher, ServerLimits(), stop=stop))
        yield listener
        stop.set()


@pytest.mark.parametrize("secret", [SECRET, b"another secret of all"])
async def test_a_connection_closes_behind_the_reply_to_a_failed_authentication(secret: bytes) -> None:
    async with open_broker() as broker, serving(broker) as listener:
        asking = Asking(Client(listener.connect()))
        answer = await prove(asking, 1, secret)
        if secret == SECRET:
            assert answer.error_code == NONE
            await asking.ask(MARKERS, 2)
            return
        assert answer.error_code == FAILED
        with pytest.raises(EOFError):
            await asking.client.receive()


async def test_an_older_peer_connection_closes_at_its_next_request() -> None:
    async with open_broker() as broker, serving(broker) as listener:
        older, newer = (Asking(Client(listener.connect())) for _ in range(2))
        await prove(older, 1)
        await prove(newer, 2)
        with pytest.raises(EOFError):
            await older.ask(MARKERS, 2)
        await newer.ask(MARKERS, 2)
        assert broker.markers.written == [WRITTEN]


@pytest.mark.parametrize("with_fast_paths", [False, True])
async def test_a_queued_request_is_not_executed_after_a_newer_peer_connection_opens(with_fast_paths: bool) -> None:
    late = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    async with open_broker() as real:
        await real.create("t")
        asked = Asked([])
        interfaces = changed(real.interfaces, authorizer=asked)
        dispatcher = Dispatcher(interfaces, API_TABLE, fast_paths(interfaces, API_TABLE) if with_fast_paths else {})
        async with serving(changed(real, dispatcher=dispatcher)) as listener:
            older, newer = (Asking(Client(listener.connect())) for _ in range(2))
            await prove(older, 1)
            await older.client.send(EndTxnRequest(transactional_id="x"), version=4)
            await older.client.send(late, version=9)
            await trio.testing.wait_all_tasks_blocked()
            await prove(newer, 2)
            real.transactions.asked[0].settle((7, 1))
            assert isinstance(await older.client.receive(), EndTxnResponse)
            with pytest.raises(EOFError):
                await older.client.receive()
            assert len(asked.principals) == 1  # by EndTxn
            await newer.ask(late, 9)
            assert len(asked.principals) == 2
