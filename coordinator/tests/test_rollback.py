"""Acceptance of a rolled back store: another history begins, above every number that was used (RULES M7)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from coordinator.api import NO_LEADER, BrokerEndpoint, BrokerState, PartitionState
from coordinator.cluster_manager import ClusterManager, ClusterManagerSettings
from coordinator.errors import AcceptanceRefused, CannotStart, MetadataRolledBack
from coordinator.metadata.change_log import ACCEPTED, READ_AGAIN_S, ROLLED_BACK
from coordinator.metadata.history import FIRST, History, HistoryPosition, contradiction, digest_of
from coordinator.metadata.layout import UNACCEPTED, KnownCluster
from coordinator.metadata_store import paths
from coordinator.metadata_store.embedded import open_embedded
from coordinator.metadata_store.store import ConnectionLost
from coordinator.ports import LogCondition
from coordinator.testing.fakes import FakeEnsemble, FakeHost, FakeStore, FakeValidator, run_inline
from coordinator.testing.simulated_metadata_store import Loss
from coordinator.transfer import rollback
from coordinator.transfer.rollback import JUMP, PRODUCER_IDS_JUMP, accept, next_history, read_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

    from coordinator.api import ClusterImage
    from coordinator.metadata_store.store import MetadataStore

IDS = (1, 2, 3)
KNOWN = HistoryPosition(0, "", 37, digest_of(b"x"))
SECOND = History(1, "a" * 32, 1_000, 5, 6, 7, 8, keeps_strays=True)


@pytest.mark.parametrize(
    ("known", "history", "newest", "digest"),
    [
        (KNOWN, FIRST, 37, KNOWN.digest),
        (KNOWN, FIRST, 38, ""),
        (replace(KNOWN, digest=""), FIRST, 37, digest_of(b"y")),
        (KNOWN, SECOND, 1_000, ""),
        (replace(KNOWN, change=999), SECOND, 1_000, ""),
        (KNOWN, replace(SECOND, first_change=0), 1, ""),
        (HistoryPosition(1, "a" * 32, 1_001), SECOND, 1_001, ""),
    ],
)
def test_a_store_that_continues_the_followed_history_is_accepted(
    known: HistoryPosition, history: History, newest: int, digest: str
) -> None:
    assert contradiction(known, history, newest, digest) is None


@pytest.mark.parametrize(
    ("known", "history", "newest", "digest", "why"),
    [
        (KNOWN, FIRST, 36, "", "its newest change is 36, and this broker has applied change 37"),
        (KNOWN, FIRST, 40, digest_of(b"y"), "change 37 differs"),
        (replace(KNOWN, change=1_000), SECOND, 2_000, "", "the accepted history begins with change 1000"),
        (HistoryPosition(1, "a" * 32, 9), FIRST, 50, "", "has applied history 1, and the store has history 0"),
        (HistoryPosition(1, "b" * 32, 9), SECOND, 1_000, "", "has applied another history 1"),
    ],
)
def test_a_store_that_contradicts_the_followed_history_is_refused_with_a_reason(
    known: HistoryPosition, history: History, newest: int, digest: str, why: str
) -> None:
    assert why in (contradiction(known, history, newest, digest) or "")


def broker(
    store: MetadataStore, host: FakeHost, broker_id: int, followed: HistoryPosition | None = None
) -> ClusterManager:
    settings = ClusterManagerSettings(
        broker_id,
        (BrokerEndpoint("PLAINTEXT", "host", 9_000 + broker_id),),
        cluster=KnownCluster(followed=followed),
    )
    return ClusterManager(store, host, FakeValidator(), settings, Random(f"{broker_id} {host.calls.count('start')}"))


class Machines:
    """The log dirs of three brokers, and the followed changes that they remember."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.ensemble = ensemble
        self.hosts = {broker_id: FakeHost() for broker_id in IDS}
        self.followed: dict[int, HistoryPosition] = {}

    @asynccontextmanager
    async def running(self, *broker_ids: int) -> AsyncIterator[list[ClusterManager]]:
        """Run brokers and stop them in order: their sessions end, and they remember the followed change."""
        stores = {broker_id: self.ensemble.connect() for broker_id in broker_ids or IDS}
        started = {
            broker_id: broker(store, self.hosts[broker_id], broker_id, self.followed.get(broker_id))
            for broker_id, store in stores.items()
        }
        try:
            async with trio.open_nursery() as nursery:
                for one in started.values():
                    await one.start()
                    nursery.start_soon(one.run)
                yield [*started.values()]
                self.followed |= {broker_id: one.followed for broker_id, one in started.items()}
                nursery.cancel_scope.cancel()
        finally:
            for store in stores.values():
                await store.close()


async def used(machines: Machines) -> tuple[ClusterImage, int]:
    """Create a topic; after the snapshot, use numbers and create another topic; then roll the store back. Returns the
    newest image of the brokers, and the greatest producer id."""
    async with machines.running() as [one, two, three]:
        await one.create_topic("named", partition_count=2, replication_factor=3)
        await one.create_topic("single", assignments={0: [2]})
        await settled(one, two, three)
        snapshot = len(machines.ensemble.history)
    for _ in range(3):
        async with machines.running() as [one, two, three]:
            producer_id = max([await two.new_producer_id(), await three.new_producer_id()])
            await settled(one, two, three)
    async with machines.running() as [one, two, three]:
        unnamed = await one.create_topic("unnamed", replication_factor=3)
        await settled(one, two, three)
        for host in machines.hosts.values():
            host.topic_ids.add(unnamed.topic_id)
        image = one.image
    machines.ensemble.roll_back(snapshot)
    return image, producer_id


async def settled(*coordinators: ClusterManager) -> None:
    await trio.sleep(30)
    assert len({one.image.version for one in coordinators}) == 1


async def accepted(store: MetadataStore, *followed: HistoryPosition, seed: int = 0) -> History:
    found = await read_store(store)
    history = next_history(found, followed, Random(seed))
    await accept(store, found, history)
    return history


def greatest_epochs(image: ClusterImage) -> tuple[int, int]:
    """The greatest leader epoch of the topic "named", and the greatest broker epoch."""
    return max(state.leader_epoch for state in image.topics["named"].partitions), max(
        one.epoch for one in image.members.values()
    )


def tell_ends(machines: Machines, *ends: tuple[int, int]) -> None:
    """Where the logs of the partitions of "named" end, by broker."""
    for host, end in zip(machines.hosts.values(), ends, strict=True):
        host.found = {("named", number): (LogCondition.WHOLE, end) for number in (0, 1)}


async def test_all_numbers_are_above_the_used_numbers_and_unnamed_partitions_are_kept() -> None:
    machines = Machines(FakeEnsemble())
    before, producer_id = await used(machines)
    store = machines.ensemble.connect()
    assert (await read_store(store)).contradictions(machines.followed.values())
    history = await accepted(store, *machines.followed.values())
    assert not (await read_store(store)).contradictions(machines.followed.values())
    tell_ends(machines, (3, 7), (3, 9), (2, 99))
    async with machines.running() as [one, two, three]:
        await settled(one, two, three)
        image = one.image
        assert image.version > history.first_change > before.version + JUMP // 2
        assert image.controller_epoch > before.controller_epoch + JUMP // 2
        leader_epoch, broker_epoch = greatest_epochs(before)
        assert all(state.leader_epoch > leader_epoch + JUMP // 2 for state in image.topics["named"].partitions)
        assert all(one.epoch > broker_epoch + JUMP // 2 for one in image.members.values())
        assert await one.new_producer_id() > producer_id + PRODUCER_IDS_JUMP
        assert [state.leader for state in image.topics["named"].partitions] == [2, 2]
        assert image.topics["single"].partitions[0].leader == 2
        assert [*image.topics] == ["named", "single"]
        unnamed = before.topics["unnamed"].topic_id
        assert all(unnamed in host.strays for host in machines.hosts.values())
        more = await one.create_partitions("named", 3)
        assert more.partitions[2].leader_epoch == history.leader_epoch


async def test_a_broker_that_the_store_does_not_name_registers_in_an_epoch_above_all() -> None:
    machines = Machines(FakeEnsemble())
    async with machines.running(1) as [one]:
        snapshot = len(machines.ensemble.history)
        async with machines.running(2):
            await trio.sleep(1)
    machines.ensemble.roll_back(snapshot)
    history = await accepted(machines.ensemble.connect())
    async with machines.running(1, 2) as [one, two]:
        await settled(one, two)
        assert one.image.members[2].epoch == history.broker_epoch >= JUMP


async def test_no_replica_leads_before_all_replicas_have_written_the_ends_of_their_logs() -> None:
    machines = Machines(FakeEnsemble())
    await used(machines)
    await accepted(machines.ensemble.connect(), *machines.followed.values())
    tell_ends(machines, (3, 7), (3, 7), (3, 9))
    async with machines.running(1, 2) as [one, two]:
        await settled(one, two)
        states = one.image.topics["named"].partitions
        assert [state.leader for state in states] == [NO_LEADER, NO_LEADER]
        async with machines.running(3):
            await trio.sleep(30)
            states = one.image.topics["named"].partitions
            assert [(state.leader, state.isr, state.recount) for state in states] == [(3, (3,), False)] * 2
            assert all(state.unclean_since == -1 for state in states)  # a log that has more is still never truncated


async def test_brokers_that_run_meanwhile_follow_and_write_nothing_until_they_are_restarted() -> None:
    ensemble = FakeEnsemble()
    machines = Machines(ensemble)
    async with machines.running() as [one, two, three]:
        await one.create_topic("named", replication_factor=3)
        await settled(one, two, three)
        snapshot = len(ensemble.history)
        await one.create_topic("unnamed", replication_factor=3)
        await settled(one, two, three)
        ensemble.roll_back(snapshot)
        await trio.sleep(60)
        operator = ensemble.connect()
        assert await operator.children(paths.BROKERS) == []  # they are not registered, and run
        history = await accepted(operator)
        await trio.sleep(60)
        assert all([*each.image.topics] == ["named", "unnamed"] for each in (one, two, three))
        assert all(ACCEPTED in str(each.metadata_failures.standing) for each in (one, two, three))
        assert (await operator.children(paths.CHANGES)) == [f"{history.first_change:010}"]
        assert await operator.children(paths.BROKERS) == []


async def test_an_accepted_history_is_not_followed_though_its_first_change_has_the_next_number() -> None:
    ensemble = FakeEnsemble()
    machines = Machines(ensemble)
    async with machines.running(1) as [one]:
        snapshot = len(ensemble.history)
        await one.create_topic("unnamed")
        newest = one.image.version
        ensemble.roll_back(snapshot)
        await trio.sleep(60)
        operator = ensemble.connect()
        found = await read_store(operator)
        history = replace(next_history(found, (), Random(0)), first_change=newest + 1)
        await accept(operator, found, history)
        await trio.sleep(60)
        assert one._changes.image.version == newest
        assert ACCEPTED in str(one.metadata_failures.standing)


async def test_an_acceptance_is_refused_while_brokers_are_registered() -> None:
    machines = Machines(FakeEnsemble())
    async with machines.running(1, 2):
        before = len(machines.ensemble.history)
        with pytest.raises(AcceptanceRefused, match=r"stop the brokers first, .*: 1, 2"):
            await accepted(machines.ensemble.connect())
        assert len(machines.ensemble.history) == before


async def test_a_broker_that_has_loaded_the_store_before_does_not_get_in() -> None:
    """The broker registers while the acceptance goes on: the next change is taken."""
    machines = Machines(FakeEnsemble())
    await used(machines)
    operator = machines.ensemble.connect()
    found = await read_store(operator)
    host = machines.hosts[1]
    late = broker(machines.ensemble.connect(), host, 1)
    begin = host.start

    async def start(image: ClusterImage, deleted: Collection[bytes]) -> object:
        await accept(operator, found, next_history(found, (), Random(0)))
        return await begin(image, deleted)

    host.start = start  # type: ignore[method-assign, assignment]
    with pytest.raises(CannotStart, match="accepted"):
        await late.start()
    assert await operator.children(paths.BROKERS) == []


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
@pytest.mark.parametrize("step", range(4))
async def test_an_acceptance_that_was_broken_off_goes_on_and_no_broker_starts_before(
    loss: Loss, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(FakeEnsemble())
    before, _ = await used(machines)
    broken = machines.ensemble.connect()
    done = [0]

    async def breaks(operations: list[object]) -> None:
        broken.script.append(loss if done[0] >= step else Loss.NOTHING)
        done[0] += 1
        await FakeStore.multi(broken, operations)  # type: ignore[arg-type]

    monkeypatch.setattr(broken, "multi", breaks)
    with pytest.raises(ConnectionLost):
        await accepted(broken, seed=1)
    operator = machines.ensemble.connect()
    if not await operator.exists(paths.CLUSTER):
        late = broker(operator, machines.hosts[1], 1, machines.followed[1])
        late._settings = replace(late._settings, cluster=KnownCluster(before.cluster_id))
        with pytest.raises(CannotStart, match=UNACCEPTED.split("`")[0]):
            await late.start()
        unfinished = (await read_store(operator)).unfinished
        assert unfinished is not None
        assert await accepted(operator, seed=2) == unfinished
    elif (await read_store(operator)).image.history == FIRST:  # the first request was lost
        await accepted(operator, seed=2)
    tell_ends(machines, (1, 1), (1, 1), (1, 1))
    async with machines.running() as [one, two, three]:
        await settled(one, two, three)
        assert one.image.history.generation == 1
        assert all(state.leader != NO_LEADER for topic in one.image.topics.values() for state in topic.partitions)


async def test_a_start_recognises_a_store_that_was_rolled_back_while_no_broker_was_running() -> None:
    machines = Machines(FakeEnsemble())
    await used(machines)
    kept = set(machines.hosts[1].topic_ids)
    with pytest.raises(MetadataRolledBack, match=f"{ROLLED_BACK}: its newest change is"):
        await broker(machines.ensemble.connect(), machines.hosts[1], 1, machines.followed[1]).start()
    assert machines.hosts[1].topic_ids == kept


async def test_a_server_that_lags_behind_at_a_start_is_asked_again() -> None:
    machines = Machines(FakeEnsemble())
    async with machines.running(1) as [one]:
        behind = machines.ensemble.connect()
        behind.lagging = behind.has_deposed_leader = True
        await one.create_topic("named")
    async with trio.open_nursery() as nursery:
        late = broker(behind, machines.hosts[1], 1, machines.followed[1])
        nursery.start_soon(late.start)
        await trio.sleep(2.5 * READ_AGAIN_S)
        behind.lagging = behind.has_deposed_leader = False
        behind.advance()
    assert [*late.image.topics] == ["named"]
    await behind.close()


async def test_another_rollback_to_before_an_accepted_one_begins_above_that_too() -> None:
    machines = Machines(FakeEnsemble())
    await used(machines)
    snapshot = len(machines.ensemble.history)
    await accepted(machines.ensemble.connect(), *machines.followed.values())
    tell_ends(machines, (1, 1), (1, 1), (1, 1))
    async with machines.running() as [one, two, three]:
        await settled(one, two, three)
        before, producer_id = one.image, await one.new_producer_id()
    machines.ensemble.roll_back(snapshot)
    store = machines.ensemble.connect()
    assert "has applied history 1" in str((await read_store(store)).contradictions(machines.followed.values()))
    history = await accepted(store, machines.followed[1], seed=3)
    assert (history.generation, history.first_change > before.version) == (2, True)
    assert history.leader_epoch > greatest_epochs(before)[0]
    assert history.broker_epoch > greatest_epochs(before)[1]
    assert history.controller_epoch > before.controller_epoch
    assert history.next_producer_id > producer_id
    async with machines.running() as [one, two, three]:
        await settled(one, two, three)
        assert one.image.version > history.first_change


async def test_a_broker_that_has_followed_more_changes_than_the_jump_refuses_to_start() -> None:
    machines = Machines(FakeEnsemble())
    await used(machines)
    history = await accepted(machines.ensemble.connect())
    far = replace(machines.followed[1], change=history.first_change)
    with pytest.raises(MetadataRolledBack, match="the accepted history begins with change"):
        await broker(machines.ensemble.connect(), machines.hosts[1], 1, far).start()
    found = await read_store(machines.ensemble.connect())
    assert next_history(found, [far], Random(0)).first_change > far.change


async def test_the_jump_is_at_least_twice_the_followed_changes_and_never_exhausts_the_numbers() -> None:
    machines = Machines(FakeEnsemble())
    await used(machines)
    found = await read_store(machines.ensemble.connect())
    version = found.image.version
    assert next_history(found, [], Random(0)).first_change == version + JUMP
    far = HistoryPosition(0, "", version + JUMP // 2)
    assert next_history(found, [far], Random(0)).first_change == version + 2 * JUMP
    with pytest.raises(AcceptanceRefused, match="would be used up"):
        next_history(found, [HistoryPosition(0, "", 2**32)], Random(0))


def test_several_replicas_have_to_write_their_log_ends_and_a_single_replica_has_not() -> None:
    state = PartitionState(2, 4, (2,), (1, 2, 3), elr=(1,))
    found = rollback.raised(state, SECOND)
    assert (found.leader, found.leader_epoch, found.isr, found.elr) == (NO_LEADER, 5, (1, 2, 3), ())
    assert (found.recount, [suspect[0] for suspect in found.suspect_replicas]) == (True, [1, 2, 3])
    single = rollback.raised(replace(state, replicas=(2,), elr=()), SECOND)
    assert (single.isr, single.recount, single.suspect_replicas, single.last_known_leader) == ((2,), False, (), 2)


async def test_the_store_of_a_broker_that_stands_alone_is_accepted_too(tmp_path: Path) -> None:
    host = FakeHost()
    store = await open_embedded(tmp_path, run_inline)
    one = broker(store, host, 1)
    await one.start()
    topic = await one.create_topic("a")
    await store.close()
    store = await open_embedded(tmp_path, run_inline)
    history = await accepted(store, replace(one.followed, change=one.followed.change + 5))
    assert (await read_store(store)).image.members[1].state is BrokerState.FENCED
    again = broker(store, host, 1, one.followed)
    await again.start()
    state = again.image.topics["a"].partitions[0]
    assert (again.image.topics["a"].topic_id, state.leader) == (topic.topic_id, 1)
    assert state.leader_epoch > history.leader_epoch
    await store.close()
