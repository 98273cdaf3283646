"""A broker with fast paths and one without, given the same frames: only the costs may differ."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import trio

from engine.api import Isolation
from kafkawire.fast_path import fast_paths
from kafkawire.fetching.sessions import FetchSession, FetchTarget
from kafkawire.handlers import API_TABLE
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.dispatch import Dispatcher
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import Broker, join, open_handlers
from kafkawire.wire.connection import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kafkawire.requests.api import FastPath
    from kafkawire.requests.started import StartedRequest
    from kafkawire.wire.connection_info import ConnectionInfo

SEED: Final = int(os.environ.get("KAFKAWIRE_FAST_PATH_SEED", "1"))
FRAMES: Final = int(os.environ.get("KAFKAWIRE_FAST_PATH_FRAMES", "3000"))
TOPICS: Final = ("plain", "stamped", "small", "secret", "compacted")
PARTITIONS: Final = 3


@dataclass
class CountingFastPath:
    """Fast path that counts the taken frames."""

    fast_path: FastPath
    taken: int = 0

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        started = self.fast_path.take(frame, connection, now_s)
        self.taken += started is not None
        return started


@dataclass
class RecordingAuthorizer:
    """Authorizer that allows everything except resources with "secret" in the name, and records its questions."""

    asked: list[tuple[object, ...]] = field(default_factory=list)
    is_broken: bool = False

    def __call__(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, /) -> bool:
        self.asked.append((principal, host, operation, kind, name))
        if self.is_broken:
            raise ZeroDivisionError("a bug")
        return name != "secret"


@dataclass
class Side:
    """A broker of the two, with its questions and outcomes."""

    broker: Broker
    dispatcher: Dispatcher
    authorizer: RecordingAuthorizer
    fast_paths: dict[int, CountingFastPath]  # by API key; the first broker has none
    outcomes: list[object] = field(default_factory=list)

    def start(self, frame: bytes) -> Any:
        try:
            started = self.dispatcher.dispatch(bytearray(frame), self.broker.connection, trio.current_time())
        except ProtocolViolation as error:
            return str(error)
        return started

    async def serve(self, frames: Sequence[bytes]) -> None:
        """Send the frames as one connection does: only behind a two-stage request may another one start."""
        started: list[Any] = []
        for frame in frames:
            started.append(self.start(frame))
            if not getattr(started[-1], "two_stage", False):
                while started:
                    await self.finish(started.pop(0))
        for one in started:
            await self.finish(one)

    async def finish(self, started: Any) -> None:
        if isinstance(started, str):
            self.outcomes.append(started)
            return
        try:
            reply = await answer(started)
        except ProtocolViolation as error:
            self.outcomes.append(str(error))
        else:
            self.outcomes.append(None if reply is None else join(reply))

    def state(self) -> dict[str, object]:
        """The resulting state, to compare both brokers."""
        metrics = self.broker.interfaces.metrics
        found: dict[str, object] = {
            "asked": self.authorizer.asked,
            "counters": {key: metrics.by_api[key] for key in fast_paths(self.broker.interfaces, API_TABLE)},
            "sessions": [describe(one) for one in self.broker.interfaces.fetch_sessions._sessions.values()],
            "topics": {name: metrics.by_topic[name] for name in TOPICS},
            "violations": metrics.protocol_violations,
        }
        for name in self.broker.cluster.image.topics:
            for partition in range(len(self.broker.cluster.image.topics[name].partitions)):
                log = self.broker.log(name, partition)
                result = log.read(log.log_start_offset, 1 << 30, Isolation.READ_UNCOMMITTED, at_least_one=True)
                found[f"{name}-{partition}"] = (log.log_end_offset, log.high_watermark, join(result.records))
                found[f"producers of {name}-{partition}"] = self.broker.store.active_producers(log.partition)
        return found


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Side, Side]]:
    async with AsyncExitStack() as stack:
        sides = []
        for with_fast_paths in (False, True):
            authorizer = RecordingAuthorizer()
            broker = await stack.enter_async_context(open_handlers(authorizer=authorizer))
            interfaces = replace(broker.interfaces, cluster=broker.cluster.real)  # one image as long as nothing changes
            found = fast_paths(interfaces, API_TABLE) if with_fast_paths else {}
            counting = {key: CountingFastPath(fast_path) for key, fast_path in found.items()}
            sides.append(Side(broker, Dispatcher(interfaces, API_TABLE, counting), authorizer, counting))
            await broker.create("plain", PARTITIONS)
            await broker.create("stamped", PARTITIONS, message_timestamp_type="LogAppendTime")
            await broker.create("small", PARTITIONS, max_message_bytes="200", flush_policy="async")
            await broker.create("secret", PARTITIONS)
            await broker.create("compacted", PARTITIONS, cleanup_policy="compact")
        yield sides[0], sides[1]


async def serve_both(sides: tuple[Side, Side], frames: Sequence[bytes]) -> None:
    """Send the same frames to both at the same time, and compare the outcomes."""
    async with trio.open_nursery() as nursery:
        for side in sides:
            nursery.start_soon(side.serve, frames)
    plain, fast = sides
    assert plain.outcomes[-len(frames) :] == fast.outcomes[-len(frames) :], [one.hex() for one in frames]


def describe(session: FetchSession) -> object:
    """The relevant state of a session."""
    names = [name for name in attributes(FetchSession) if name not in ("targets", "pending", "watch")]
    targets = [describe_target(one) for one in session.targets.values()]
    watched = sorted(map(str, session.watch._logs))
    return [getattr(session, name) for name in names], targets, [one.key for one in session.pending], watched


def describe_target(target: FetchTarget) -> object:
    log = target.log
    return [getattr(target, name) for name in attributes(FetchTarget) if name != "log"], log and log.partition


def attributes(kind: type) -> Sequence[str]:
    """Attributes of a class with slots, or of a compiled one."""
    found: Sequence[str] = getattr(kind, "__mypyc_attrs__", None) or kind.__slots__  # type: ignore[attr-defined]
    return [name for name in found if not name.startswith("__")]
