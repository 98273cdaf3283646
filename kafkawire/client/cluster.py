"""A cluster for the command line: finds the right broker for a request, and retries until it is ready.

Requests about partitions go to their leaders, which are cached until one refuses or a connection is lost. Requests
about groups and transactional ids go to their coordinators. Leaders and coordinators move, and may be starting. The
caller sets a deadline; `waiting_for` then names the last problem.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from kafkawire.client.connection import Address, Connect, Connection, connect_tcp
from kafkawire.client.errors import CannotConnect, ClientError, Refusal, refusal
from kafkawire.client.partitions import TopicPartition
from kafkawire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkawire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kafkawire.requests.errors import ErrorCode

GROUPS_AT_ONCE: Final = 500  # in one request; the same for transactional ids
PARTITIONS_AT_ONCE: Final = 10_000
LEADER_ATTEMPTS: Final = 5  # a partition may stay without a leader for long; a coordinator comes back
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 1.0

_COORDINATOR_COMES = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_CONTROLLER_COMES = frozenset({ErrorCode.NOT_CONTROLLER})
LEADER_COMES: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE}
)

_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")
_Attempt = Callable[[list[_KeyT]], Awaitable[dict[_KeyT, _ValueT | Refusal]]]


class Coordinated(IntEnum):
    """Kinds of coordinators: Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTIONAL_ID = 1


class Cluster:
    """Connections to brokers, opened when they are needed. `async with` closes them."""

    def __init__(self, bootstrap: Sequence[Address], connect: Connect = connect_tcp) -> None:
        self.waiting_for = "a connection"
        self.bootstrap = bootstrap
        self._reached = bootstrap  # or the bootstrap server that answered
        self._connect = connect
        self._connections: dict[Address, Connection] = {}
        self._known_leaders: dict[TopicPartition, Address] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close all connections, and start again from the bootstrap servers."""
        for connection in self._connections.values():
            await connection.aclose()
        self._connections.clear()
        self._known_leaders.clear()
        self._reached = self.bootstrap

    async def run_within(self, timeout_s: float, work: Callable[[], Awaitable[_ValueT]]) -> _ValueT:
        """Run `work` with a timeout. Raises ClientError after it."""
        with trio.move_on_after(timeout_s):
            return await work()
        raise ClientError(f"not done after {timeout_s:g} s, waiting for {self.waiting_for}")

    async def retrying(self, work: Callable[[], Awaitable[_ValueT]]) -> _ValueT:
        """Repeat `work` when a connection is lost, until the caller's deadline. It must be repeatable."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return await work()
            except CannotConnect as error:
                await self.disconnect()
                self.waiting_for = str(error)
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def broker(self, address: Address) -> Connection:
        """A connection to the broker at this address. Raises ClientError."""
        self.waiting_for = f"an answer of {address}"
        if address not in self._connections:
            self._connections[address] = await Connection.open(address, self._connect)
        return self._connections[address]

    async def any_broker(self) -> Connection:
        """A connection to the first bootstrap server that can be reached. Raises CannotConnect."""
        problems = []
        for address in self._reached:
            try:
                found = await self.broker(address)
            except CannotConnect as error:
                problems.append(str(error))
            else:
                self._reached = [address]
                return found
        raise CannotConnect("; ".join(problems))

    async def brokers(self) -> list[Address]:
        """Addresses of all brokers of the cluster."""
        return list((await self._metadata([]))[0].values())

    async def broker_of_id(self, broker_id: int) -> Connection:
        """A connection to the broker with this id. Raises ClientError."""
        brokers = (await self._metadata([]))[0]
        if broker_id not in brokers:
            raise ClientError(f"there is no broker {broker_id}")
        return await self.broker(brokers[broker_id])

    async def topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        """Metadata of these topics, or of all; none is created."""
        return (await self._metadata(names))[1]

    async def controller(self) -> Connection:
        """A connection to the controller; to any broker if none is named. Raises ClientError."""
        brokers, _, controller_id = await self._metadata([])
        return await self.broker(brokers[controller_id]) if controller_id in brokers else await self.any_broker()

    async def at_controller(
        self,
        names: Iterable[str],
        ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, _ValueT | Refusal]]],
    ) -> dict[str, _ValueT | Refusal]:
        """Answers of the controller, which `ask` requests for these names."""
        return await self._settled(
            list(dict.fromkeys(names)), self._attempt_with(self._controller, ask), _CONTROLLER_COMES
        )

    async def at_coordinators(
        self,
        names: Iterable[str],
        ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, _ValueT | Refusal]]],
        kind: Coordinated = Coordinated.GROUP,
    ) -> dict[str, _ValueT | Refusal]:
        """Answers of the coordinators of these groups or transactional ids; `ask` requests those of one coordinator."""
        attempt = self._attempt_with(partial(self._coordinators, kind), ask)
        answers: dict[str, _ValueT | Refusal] = {}
        for portion in _portions(names, GROUPS_AT_ONCE):
            answers.update(await self._settled(portion, attempt, _COORDINATOR_COMES))
        return answers

    async def at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[Connection, list[TopicPartition]], Awaitable[Mapping[TopicPartition, _ValueT | Refusal]]],
        transient: Collection[ErrorCode] = LEADER_COMES,
        attempts_max: int | None = LEADER_ATTEMPTS,
    ) -> dict[TopicPartition, _ValueT | Refusal]:
        """Answers of these partitions' leaders.

        `ask` requests those of one leader, again after a `transient` refusal.
        """

        async def ask_leader(
            connection: Connection, led: list[TopicPartition]
        ) -> Mapping[TopicPartition, _ValueT | Refusal]:
            outcome = await ask(connection, led)
            for one in led:
                if isinstance(outcome.get(one), Refusal):  # perhaps the broker does not lead it any more
                    self._known_leaders.pop(one, None)
            return outcome

        attempt = self._attempt_with(self.leaders, ask_leader)
        answers: dict[TopicPartition, _ValueT | Refusal] = {}
        for portion in _portions(partitions, PARTITIONS_AT_ONCE):
            answers.update(await self._settled(portion, attempt, transient, attempts_max))
        return answers

    async def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Address | Refusal]:
        """Leaders of these partitions; only unknown ones are requested."""
        wanted = list(partitions)
        unknown = [one for one in wanted if one not in self._known_leaders]
        found = await self._find_leaders(unknown) if unknown else {}
        self._known_leaders |= {one: place for one, place in found.items() if isinstance(place, Address)}
        return {one: found[one] if one in found else self._known_leaders[one] for one in wanted}

    async def at_brokers(
        self, ask: Callable[[Connection], Awaitable[_ValueT | Refusal]]
    ) -> dict[Address, _ValueT | Refusal]:
        """Answers of all brokers. A broker that loads its coordinators is asked again until it has loaded them."""

        async def attempt(pending: list[Address]) -> dict[Address, _ValueT | Refusal]:
            return {address: await ask(await self.broker(address)) for address in pending}

        return await self._settled(await self.brokers(), attempt, _COORDINATOR_COMES)

    def _attempt_with(
        self,
        find: Callable[[list[_KeyT]], Awaitable[Mapping[_KeyT, Address | Refusal]]],
        ask: Callable[[Connection, list[_KeyT]], Awaitable[Mapping[_KeyT, _ValueT | Refusal]]],
    ) -> _Attempt[_KeyT, _ValueT]:
        """An attempt that finds the broker of each key, and asks it."""

        async def attempt(pending: list[_KeyT]) -> dict[_KeyT, _ValueT | Refusal]:
            outcome: dict[_KeyT, _ValueT | Refusal] = {}
            by_address: dict[Address, list[_KeyT]] = {}
            for key, place in (await find(pending)).items():
                if isinstance(place, Refusal):
                    outcome[key] = place
                else:
                    by_address.setdefault(place, []).append(key)
            for address, own_keys in by_address.items():
                outcome.update(await ask(await self.broker(address), own_keys))
            return outcome

        return attempt

    async def _settled(
        self,
        keys: Sequence[_KeyT],
        attempt: _Attempt[_KeyT, _ValueT],
        transient: Collection[ErrorCode],
        attempts_max: int | None = None,
    ) -> dict[_KeyT, _ValueT | Refusal]:
        """Repeat the attempt for keys with a transient refusal; the last attempt counts."""
        settled: dict[_KeyT, _ValueT | Refusal] = {}
        pending = list(keys)
        pause_s = RETRY_FIRST_S
        attempts = 0
        while pending and attempts != attempts_max:
            if attempts:
                self.waiting_for = f"{pending[0]}: {settled[pending[0]]}"
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            settled.update(await attempt(pending))
            attempts += 1
            if not settled.keys() >= set(pending):
                raise ClientError(f"the brokers say nothing of {next(key for key in pending if key not in settled)}")
            pending = [key for key in pending if _is_one_of(settled[key], transient)]
        return settled

    async def _coordinators(self, kind: Coordinated, names: Sequence[str]) -> dict[str, Address | Refusal]:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(names))
        answer = await (await self.any_broker()).call(request, FindCoordinatorResponse, at_least=4)
        return {
            one.key: refusal(one.error_code, one.error_message) if one.error_code else Address(one.host, one.port)
            for one in answer.coordinators
        }

    async def _find_leaders(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, Address | Refusal]:
        brokers, topics, _ = await self._metadata({one.topic for one in wanted})
        leaders: dict[TopicPartition, Address | Refusal] = {
            TopicPartition(name, row.partition_index): brokers.get(row.leader_id)
            or refusal(ErrorCode.LEADER_NOT_AVAILABLE)
            for name, topic in topics.items()
            for row in topic.partitions
        }
        unknown = refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refused = {name: refusal(topic.error_code) for name, topic in topics.items() if topic.error_code}
        return {one: leaders.get(one) or refused.get(one.topic, unknown) for one in wanted}

    async def _controller(self, names: Sequence[str]) -> dict[str, Address | Refusal]:
        brokers, _, controller_id = await self._metadata([])
        place = brokers.get(controller_id) or refusal(ErrorCode.NOT_CONTROLLER)
        return dict.fromkeys(names, place)

    async def _metadata(
        self, names: Collection[str] | None
    ) -> tuple[dict[int, Address], dict[str, MetadataResponseTopic], int]:
        """Brokers by id, topics by name, and the controller's id."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await (await self.any_broker()).call(request, MetadataResponse, at_least=4)
        brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        return brokers, {one.name: one for one in answer.topics if one.name is not None}, answer.controller_id


def _is_one_of(outcome: object, codes: Collection[ErrorCode]) -> bool:
    return isinstance(outcome, Refusal) and outcome.code in codes


def _portions(keys: Iterable[_KeyT], size: int) -> list[list[_KeyT]]:
    """Portions of the keys; each key occurs once."""
    every = list(dict.fromkeys(keys))
    return [every[start : start + size] for start in range(0, len(every), size)]
