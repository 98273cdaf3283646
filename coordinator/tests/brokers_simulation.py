"""Three brokers' control planes on one fake ensemble, with all its faults, and clients that change things meanwhile.

Everything is drawn from a seed: requests of clients, crashes, pauses and cuts of brokers, and the fate of their
requests in the store. At the end the brokers have to agree with each other, with the store, and with the replies to
clients. `python -m coordinator.tests.brokers_simulation --seeds 0:2000` runs many.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

import structlog
import trio
import trio.testing

from coordinator.api import BrokerEndpoint, ConfigChange, ConfigOperation, ElectionType, Reassignment
from coordinator.cluster_manager import ClusterManager, ClusterManagerSettings
from coordinator.errors import CannotStart, CoordinatorError
from coordinator.metadata import change_retention
from coordinator.metadata.changes import is_parent
from coordinator.metadata.image import empty, folded
from coordinator.metadata.loading import load
from coordinator.metadata.nodes import decode_change, decode_partition
from coordinator.metadata_store import paths
from coordinator.metadata_store.tree import EffectKind
from coordinator.ports import FoundLog, LogCondition, ReplicaEnd
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeEnsemble, FakeHost, FakeStore, FakeValidator, Faults
from coordinator.testing.images import epochs_led
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from coordinator.api import BrokerInfo, ClusterImage
    from coordinator.ports import HostChanges, HostedPartition, LogEndRequest

COMMAND = "python -m coordinator.tests.brokers_simulation"
BROKERS = (1, 2, 3)
FAULTS = Faults(request_lost=0.03, request_late=0.03, reply_lost=0.05, replica_lags=0.2, deposed_sync=0.1, flap=0.02)
REQUESTS, CLIENTS, BLOWS = 30, 3, 12
NOT_OPENED = 0.05  # of the logs that are to be opened
NOT_ANSWERED = 0.2  # of the questions where logs end
SILENCE_MAX_S = 40.0  # twice a session
SETTLE_S = 200.0
KEPT_SIZES_BYTES = (change_retention.KEPT_SIZE_MAX_BYTES, 5_000)  # all changes of a seed, or about ten of them


Key = tuple[bytes, int]  # topic id, partition


class Witness(FakeHost):
    """The log dirs of a broker, and a record of which broker opened a partition in which epoch: no two processes in
    one.

    Some logs do not open, or are closed; as in a real host none is opened again before the cluster knows it.
    """

    def __init__(self, broker_id: int, used: dict[tuple[bytes, int, int], bytes], random: Random) -> None:
        super().__init__()
        self.log_dirs = (f"disk {broker_id}",)
        self.used = used
        self.incarnation: Callable[[], bytes] = bytes
        self.is_well = False  # all logs open from now on
        self._broker_id, self._random = broker_id, random
        self._hosted: dict[Key, HostedPartition] = {}
        self._led: set[Key] = set()
        self.unserved: set[Key] = set()
        self._back: dict[Key, FoundLog] = {}

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[FoundLog]:
        await trio.lowlevel.checkpoint()
        self._hosted = {(one.topic_id, one.partition): one for one in hosted}
        self.unserved = {key for key in self._hosted if self._fails()}
        self.has_unserved = bool(self.unserved)
        return [self._found_log(key) for key in self._hosted]

    def _found_log(self, key: Key) -> FoundLog:
        return FoundLog(self._hosted[key], LogCondition.CLOSED if key in self.unserved else LogCondition.WHOLE, (0, 0))

    def _fails(self) -> bool:
        return not self.is_well and self._random.random() < NOT_OPENED

    async def apply(self, changes: HostChanges) -> None:
        all_are_kept = KEPT_SIZES_BYTES[0] == change_retention.KEPT_SIZE_MAX_BYTES
        assert not (changes.vanished and all_are_kept), "a deletion is not known as one"
        for one in (*changes.dropped, *changes.vanished):
            key = one.topic_id, one.partition
            for known in (self._hosted, self._back):
                known.pop(key, None)
            self.unserved.discard(key)
        self._hosted |= {(one.topic_id, one.partition): one for one in (*changes.followed, *changes.led)}
        self._led -= {(one.topic_id, one.partition) for one in (*changes.followed, *changes.dropped, *changes.vanished)}
        self._led |= {(one.topic_id, one.partition) for one in changes.led}
        for one in (*changes.followed, *changes.led):
            self._open((one.topic_id, one.partition), one)
        led = [one for one in changes.led if (one.topic_id, one.partition) not in self.unserved]
        followed = [*changes.followed, *(one for one in changes.led if one not in led)]
        for one in led:
            used = (one.topic_id, one.partition, one.state.leader_epoch)
            assert self.used.setdefault(used, self.incarnation()) == self.incarnation()
            assert self._broker_id not in one.state.offline, "a replica that does not serve is elected"
        await super().apply(changes._replace(led=led, followed=followed))

    def _open(self, key: Key, hosted: HostedPartition) -> None:
        if key in self.unserved and (key in self._led or self._broker_id not in hosted.state.offline):
            return
        self._set(key, is_served=not self._fails())

    def _set(self, key: Key, *, is_served: bool) -> None:
        if is_served and key in self.unserved:
            self.unserved.discard(key)
            self._back[key] = self._found_log(key)
            self.has_unserved_changes = True
        elif not is_served:
            self.unserved.add(key)
            self._back.pop(key, None)
            hosted = self._hosted[key]
            self.epochs.pop((hosted.topic, hosted.partition), None)
            self.has_unserved_changes = True
        self.has_unserved = bool(self.unserved)

    def take_unserved(self) -> Sequence[FoundLog]:
        back, self._back, self.has_unserved_changes = self._back, {}, False
        return [*back.values(), *map(self._found_log, sorted(self.unserved))]

    async def open_again(self, image: ClusterImage) -> None:
        await trio.lowlevel.checkpoint()
        for key in sorted(self.unserved):
            state = image.topics_by_id[key[0]].partitions[key[1]]
            if key not in self._led and self._broker_id in state.offline:
                self._set(key, is_served=not self._fails())

    def end_of(self, asked: LogEndRequest) -> ReplicaEnd | None:
        """The end of a log that follows in that epoch."""
        key = asked.topic_id, asked.partition
        hosted = self._hosted.get(key)
        is_open = hosted is not None and key not in self.unserved and key not in self._led
        follows = hosted is not None and hosted.state.leader_epoch == asked.leader_epoch
        return ReplicaEnd(0, self._random.randrange(3), 0) if is_open and follows else None

    def close_one(self) -> None:
        """Close the log of one partition."""
        if self._hosted:
            self._set(self._random.choice(sorted(self._hosted)), is_served=False)


class Ends:
    """A `ReplicaEnds` that asks the processes of brokers, some of them in vain."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random

    async def ask(self, broker: BrokerInfo, asked: Sequence[LogEndRequest]) -> Mapping[LogEndRequest, ReplicaEnd]:
        await trio.sleep(self._random.random())
        life = self._world.lives.get(broker.broker_id)
        if life is None or life.coordinator.incarnation != broker.incarnation or self._random.random() < NOT_ANSWERED:
            return {}
        self._world.answers += len(asked)
        ends = ((one, life.host.end_of(one)) for one in asked)
        return {one: end for one, end in ends if end is not None}


@dataclass
class Life:
    """A process of a broker."""

    store: FakeStore
    host: Witness
    coordinator: ClusterManager
    scope: trio.CancelScope


@dataclass
class Replies:
    """The replies to clients, and the requests without a reply."""

    created: dict[bytes, str] = field(default_factory=dict)
    deleted: set[bytes] = field(default_factory=set)
    asked_to_delete: set[str] = field(default_factory=set)
    tokens: list[tuple[bytes, str]] = field(default_factory=list)  # by topic id
    producer_ids: list[int] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)


class World:
    """The brokers of one seed, and the faults that they meet."""

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        self.random = Random(seed)
        self.ensemble = FakeEnsemble(self.random)
        self.replies = Replies()
        self.lives: dict[int, Life] = {}
        self.crashes = self.closings = self.answers = 0
        self.are_well = False
        self._used: dict[tuple[bytes, int, int], bytes] = {}
        self._nursery = nursery

    async def start(self, broker_id: int) -> None:
        """Start a process of this broker, on the disks of the ones before; as often as it takes."""
        while True:
            store = self.ensemble.connect()
            host = Witness(broker_id, self._used, Random(self.random.getrandbits(64)))
            host.is_well = self.are_well
            settings = ClusterManagerSettings(
                broker_id,
                (BrokerEndpoint("PLAINTEXT", "host", broker_id),),
                defaults=TopicDefaults(2),
                replica_ends=Ends(self, Random(self.random.getrandbits(64))),
            )
            seed = Random(self.random.getrandbits(64))
            coordinator = ClusterManager(store, host, FakeValidator(), settings, seed)
            host.incarnation = partial(getattr, coordinator, "incarnation")
            try:
                await coordinator.start()
            except CannotStart:
                store.disconnected = True  # as a process that is gone
            else:
                break
        life = self.lives[broker_id] = Life(store, host, coordinator, trio.CancelScope())
        await self._nursery.start(self._live, life)

    async def _live(self, life: Life, *, task_status: trio.TaskStatus[None]) -> None:
        with life.scope:
            task_status.started()
            await life.coordinator.run()

    async def blows(self) -> None:
        """Inject faults into brokers, one after the other."""
        for _ in range(BLOWS):
            await trio.sleep(self.random.random() * 5)
            life = self.lives[self.random.choice(BROKERS)]
            blow = self.random.choice([self._crash, self._cut_power, self._pause, self._cut, self._expire, self._close])
            await blow(life)

    async def _crash(self, life: Life) -> None:
        """End a process like `kill -9`. Its session ends by the clock, unless its next process registers before."""
        self.crashes += 1
        life.scope.cancel()
        life.store.disconnected = True
        await trio.sleep(self.random.choice([0.0, self.random.random() * SILENCE_MAX_S]))
        await self.start(next(one for one, known in self.lives.items() if known is life))

    async def _cut_power(self, _life: Life) -> None:
        """Cut the power of all brokers; they are back one after the other, before their sessions end or after."""
        self.crashes += len(BROKERS)
        for life in self.lives.values():
            life.scope.cancel()
            life.store.disconnected = True
        await trio.sleep(self.random.choice([0.0, SILENCE_MAX_S]))
        for broker_id in self.random.sample(BROKERS, len(BROKERS)):
            await trio.sleep(self.random.random() * 6)
            await self.start(broker_id)

    async def _pause(self, life: Life) -> None:
        life.store.pause()
        await trio.sleep(self.random.random() * SILENCE_MAX_S)
        life.store.resume()

    async def _cut(self, life: Life) -> None:
        life.store.disconnected = True
        await trio.sleep(self.random.random() * SILENCE_MAX_S)
        life.store.disconnected = False

    async def _expire(self, life: Life) -> None:
        await trio.lowlevel.checkpoint()
        self.ensemble.expire(life.store)

    async def _close(self, life: Life) -> None:
        await trio.lowlevel.checkpoint()
        self.closings += 1
        life.host.close_one()
        life.coordinator.note_loss()

    async def client(self, number: int) -> None:
        """Send random requests to random brokers."""
        for request in range(REQUESTS):
            life = self.lives[self.random.choice(BROKERS)]
            with trio.move_on_after(60), suppress(CoordinatorError):
                await self._ask(life.coordinator, f"t{self.random.randrange(4)}", f"{number}.{request}")
            await trio.sleep(self.random.random())

    async def _ask(self, cluster: ClusterManager, name: str, token: str) -> None:
        draw, replies = self.random.random(), self.replies
        if draw < 0.3:
            count, factor = self.random.randrange(1, 4), self.random.randrange(1, 4)
            topic = await cluster.create_topic(name, partition_count=count, replication_factor=factor)
            replies.created[topic.topic_id] = name
        elif draw < 0.45:
            replies.asked_to_delete.add(name)
            replies.deleted.add((await cluster.delete_topic(name)).topic_id)
        elif draw < 0.6:
            await cluster.create_partitions(name, self.random.randrange(3, 7))
        elif draw < 0.9:
            append = ConfigChange(ConfigOperation.APPEND, "cleanup.policy", token)
            topic = await cluster.alter_topic_configs(name, [append])
            replies.tokens.append((topic.topic_id, token))
        elif draw < 0.96:
            await self._order(cluster, name)
        else:
            replies.producer_ids.append(await cluster.new_producer_id())
        replies.requests["answered"] += 1

    async def _order(self, cluster: ClusterManager, name: str) -> None:
        """Send an admin request: replicas move, or back; a leader is elected; a running broker is unregistered. Some
        are refused."""
        to = self.random.choice([None, tuple(self.random.sample(BROKERS, self.random.randrange(1, 4)))])
        await cluster.reassign([Reassignment(name, 0, to)])
        await cluster.elect_leaders(self.random.choice([*ElectionType]), [(name, 0)])
        if self.random.random() < 0.2:
            await cluster.unregister_broker(self.random.choice(BROKERS))

    async def run(self) -> None:
        """Run everything, and then check the result."""
        async with trio.open_nursery() as starting:
            for broker_id in BROKERS:
                starting.start_soon(self.start, broker_id)
        self.ensemble.faults = FAULTS
        async with trio.open_nursery() as working:
            working.start_soon(self.blows)
            for number in range(CLIENTS):
                working.start_soon(self.client, number)
        self.ensemble.faults = Faults()
        self.are_well = True
        for life in self.lives.values():
            life.host.is_well = True
        for _ in range(2):
            await trio.sleep(SETTLE_S)
            self.ensemble.catch_up_all()
        await self.check()

    async def check(self) -> None:
        """Check that brokers, store, changes and clients agree."""
        images = [self.lives[broker_id].coordinator.image for broker_id in BROKERS]
        assert list(images[0].brokers) == list(BROKERS)
        assert images[0] == images[1] == images[2]
        image = images[0]
        assert (await load(self.ensemble.connect(), image.cluster_id)).image == image
        assert folded_by_hand(self.ensemble, image.cluster_id) == image
        check_leaders(self.ensemble)
        self._check_hosts(image)
        self._check_clients(image)

    def _check_hosts(self, image: ClusterImage) -> None:
        for broker_id, life in self.lives.items():
            assert life.host.epochs == epochs_led(image, broker_id)
            assert not life.host.unserved
        states = [state for topic in image.topics.values() for state in topic.partitions]
        assert all(state.leader in BROKERS for state in states)
        assert not any(state.offline for state in states)

    def _check_clients(self, image: ClusterImage) -> None:
        replies = self.replies
        assert not replies.deleted & image.topics_by_id.keys()
        for topic_id, name in replies.created.items():
            assert topic_id in image.topics_by_id or name in replies.asked_to_delete
        for topic_id, token in replies.tokens:
            topic = image.topics_by_id.get(topic_id)
            assert topic is None or topic.configs["cleanup.policy"].split(",").count(token) == 1
        assert len(set(replies.producer_ids)) == len(replies.producer_ids)


def folded_by_hand(ensemble: FakeEnsemble, cluster_id: str) -> ClusterImage:
    """The sum of all changes that there ever were. Each of them must repeat all that was written with it."""
    image = empty(cluster_id)
    for effects in ensemble.history:
        nodes = {effect.path: effect.node.value for effect in effects if effect.node is not None}
        changes = [path for path in nodes if path.startswith(f"{paths.CHANGES}/")]
        written = {path for path in nodes if paths.is_logged(path) and not is_parent(path)}
        if not changes:
            assert written <= {paths.CONTROLLER_EPOCH}, "a change that nobody is told of"  # the layout has it
            continue
        assert changes == [paths.change(image.version + 1)], "a number that was skipped, or given twice"
        change = decode_change(changes[0], nodes[changes[0]])
        assert {node.path for node in change.nodes} == written
        image = folded(image, image.version + 1, change.nodes, change.deleted)
    return image


def check_leaders(ensemble: FakeEnsemble) -> None:
    """Check that an epoch has one leader, in one registration, and that epochs never fall."""
    last: dict[str, tuple[int, int, bytes]] = {}
    for effects in ensemble.history:
        for effect in effects:
            if effect.path.startswith(f"{paths.PARTITIONS}/") and effect.path.count("/") == 3 and effect.node:
                state = decode_partition(effect.path, 0, effect.node.value)
                now = (state.leader_epoch, state.leader, state.incarnation)
                before = last.get(effect.path) if effect.kind is not EffectKind.CREATED else None
                assert before is None or before == now or before[0] < now[0]
                last[effect.path] = now


@asynccontextmanager
async def world(seed: int) -> AsyncIterator[World]:
    """The brokers of one seed."""
    async with trio.open_nursery() as nursery:
        yield World(seed, nursery)
        nursery.cancel_scope.cancel()


def run_seed(seed: int) -> Counter[str]:
    """Run a seed; raises an error for a wrong result; returns how much happened."""

    async def main() -> Counter[str]:
        async with world(seed) as made:
            await made.run()
            changes = made.lives[1].coordinator.image.version
            happened = {"changes": changes, "crashes": made.crashes, "closings": made.closings}
            happened["ends asked for"] = made.answers
            return Counter({**happened, **made.replies.requests})

    with (
        mock.patch("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", new=True),
        mock.patch("trio._core._run._r", Random(seed)),
        mock.patch.object(change_retention, "KEPT_SIZE_MAX_BYTES", KEPT_SIZES_BYTES[seed % 2]),
    ):
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def _try_seed(seed: int) -> tuple[int, Counter[str], str | None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return seed, run_seed(seed), None
    except BaseException as error:
        return seed, Counter(), _words_of(error)


def _words_of(error: BaseException) -> str:
    """The innermost error of a group, with the line of the assertion."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.name}: {last.line}"


def _outcomes(seeds: range, jobs: int) -> Iterator[tuple[int, Counter[str], str | None]]:
    if jobs == 1:
        yield from map(_try_seed, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_try_seed, seeds, chunksize=4)


def main() -> None:
    """Run seeds. Exit code 1: a seed failed; the first one ends it unless it is to keep going."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="A:B, from A up to, not including, B")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    chosen = parser.parse_args()
    first, end = map(int, chosen.seeds.split(":"))
    total, failed = Counter[str](), 0
    for seed, happened, error in _outcomes(range(first, end), chosen.jobs):
        total += happened
        if error is not None:
            failed += 1
            print(f"seed {seed} FAILED: {COMMAND} --seeds {seed}:{seed + 1}\n  {error}", flush=True)
            if not chosen.keep_going:
                os._exit(1)  # the others of the pool are not waited for
    sums = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    summary = f"seeds from {chosen.seeds}: {end - first}, {sums}, {failed} failed"
    print(summary)
    note_for_ledger(summary)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
