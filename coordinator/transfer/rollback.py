"""Acceptance of a metadata store that was rolled back: a new history begins, above every number of earlier histories.

Each change raises an epoch by one at most. So no epoch has grown by more than the changes that were made, and all of
them, with the change number, jump by the same distance. docs/decisions/0049 has the proof. The store is without a
cluster while this goes on: no broker starts on it. An acceptance that was broken off goes on with the same numbers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coordinator.api import NO_CONTROLLER, NO_LEADER, BrokerState
from coordinator.controller.elections import NO_LOG
from coordinator.errors import AcceptanceRefused
from coordinator.metadata.changes import OPERATOR
from coordinator.metadata.history import History, contradiction, digest_of
from coordinator.metadata.history_nodes import decode_accepting, encode_accepting, encode_history
from coordinator.metadata.loading import load, number_of
from coordinator.metadata.nodes import Change, encode_change, encode_controller_epoch, encode_member
from coordinator.metadata.plans import BATCH_OPERATIONS_MAX, first_batch, write_partition
from coordinator.metadata.unlogged_nodes import decode_cluster, decode_producer_ids, encode_cluster, encode_producer_ids
from coordinator.metadata_store import paths
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Put,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

    from coordinator.api import ClusterImage, PartitionState
    from coordinator.metadata.history import HistoryPosition
    from coordinator.metadata_store.store import MetadataStore

JUMP: Final = 2**20
PRODUCER_IDS_JUMP: Final = 2**24  # for each step of the jump: 16,777 blocks of producer ids for one change
LEADER_EPOCH_MAX: Final = 2**31 - 1
CHANGE_MAX: Final = 10**10 - 1  # ten digits
FEATURES_RAISES: Final = 100  # changes of features are an administrator's
ATTEMPTS_MAX: Final = 10
OTHER_WRITER: Final = "another process writes to the metadata store: stop it, and try again"


@dataclass(frozen=True, slots=True)
class StoreContent:
    """The store as it is. `unfinished`: the history of an acceptance that was not finished. `digests`: of the kept
    changes, by number."""

    image: ClusterImage
    next_producer_id: int
    registered: Sequence[str]
    digests: dict[int, str]
    unfinished: History | None = None

    def contradictions(self, followed: Iterable[HistoryPosition]) -> list[str]:
        """The reasons, from the followed changes of brokers, why the store must have been rolled back."""
        image = self.image
        found = (contradiction(one, image.history, image.version, self.digests.get(one.change, "")) for one in followed)
        return sorted({one for one in found if one is not None})


async def read_store(store: MetadataStore) -> StoreContent:
    """Read all of the store. Raises AcceptanceRefused, CannotStart, and the errors of the store."""
    await store.sync()
    [cluster, accepting, producers] = await store.read_many([paths.CLUSTER, paths.ACCEPTING, paths.PRODUCER_IDS])
    unfinished = None
    if accepting is not None:
        cluster_id, unfinished = decode_accepting(paths.ACCEPTING, accepting.value)
    elif cluster is not None:
        cluster_id, _ = decode_cluster(paths.CLUSTER, cluster.value)
    else:
        raise AcceptanceRefused("the metadata store has no cluster")
    image = (await load(store, cluster_id)).image
    next_id = 0 if producers is None else decode_producer_ids(paths.PRODUCER_IDS, producers.value)
    [registered] = await store.children_of_many([paths.BROKERS])
    numbers = [number_of(name) for name in await store.children(paths.CHANGES)]
    values = zip(numbers, await store.read_many([paths.change(number) for number in numbers]), strict=True)
    digests = {number: digest_of(node.value) for number, node in values if node is not None}
    return StoreContent(image, next_id, registered, digests, unfinished)


def next_history(found: StoreContent, followed: Sequence[HistoryPosition], random: Random) -> History:
    """The history that is to begin, above all that any broker may have used. Raises AcceptanceRefused when numbers are
    used up."""
    if found.unfinished is not None:
        return found.unfinished
    image, known = found.image, found.image.history
    jump = JUMP
    while any(2 * (one.change - image.version + 1) > jump for one in followed):
        jump *= 2
    members = [*image.members.values(), *image.former.values()]
    history = History(
        generation=1 + max(known.generation, *(one.generation for one in followed), 0),
        history_id=random.getrandbits(128).to_bytes(16, "big").hex(),
        first_change=image.version + jump,
        leader_epoch=jump + max(known.leader_epoch, *(state.leader_epoch for state in _states(image)), 0),
        broker_epoch=jump + max(known.broker_epoch, *(one.epoch for one in members), 0),
        controller_epoch=image.controller_epoch + jump,
        next_producer_id=found.next_producer_id + jump * PRODUCER_IDS_JUMP,
        keeps_strays=True,
    )
    if history.leader_epoch + jump > LEADER_EPOCH_MAX or history.first_change + jump > CHANGE_MAX:
        raise AcceptanceRefused("the leader epochs, or the numbers of changes, would be used up")
    return history


def _states(image: ClusterImage) -> Iterator[PartitionState]:
    return (state for topic in image.topics_by_id.values() for state in topic.partitions)


async def accept(store: MetadataStore, found: StoreContent, history: History) -> None:
    """Begin the history. Raises AcceptanceRefused while brokers are registered, CannotStart, and the errors of the
    store: then the acceptance is to be called again."""
    if found.registered:
        names = ", ".join(found.registered)
        raise AcceptanceRefused(f"stop the brokers first, and wait for their sessions to end: {names}")
    cluster_id = found.image.cluster_id
    try:
        if found.unfinished is None:
            await _begin(store, found.image, history)
        await _raise_all(store, cluster_id, history)
        await _drop_changes(store)
        await _finish(store, cluster_id, history)
    except (BadVersion, NodeExists, NoNode) as error:
        raise AcceptanceRefused(f"{OTHER_WRITER} ({error!r})") from error


async def _begin(store: MetadataStore, image: ClusterImage, history: History) -> None:
    """Begin the acceptance: no broker starts from here on, and no broker that has loaded the store can write, as the
    next change is taken."""
    node = await store.get(paths.CLUSTER)
    operations: list[Operation] = [
        Delete(paths.CLUSTER, node.version),
        Create(paths.ACCEPTING, encode_accepting(image.cluster_id, history)),
        Create(paths.change(image.version + 1), _marker(history)),
    ]
    await commit(store, operations)


async def _raise_all(store: MetadataStore, cluster_id: str, history: History) -> None:
    """Raise the epochs of partitions and brokers to those of the new history: a repetition changes nothing."""
    for _ in range(ATTEMPTS_MAX):
        image = (await load(store, cluster_id)).image
        operations: Sequence[Operation] = [*_raised_members(image, history), *_raised_partitions(image, history)]
        if not operations:
            return
        with suppress(ConnectionLost):  # the outcome is not known: the rest is read again
            while batch := first_batch(operations):
                await store.multi([Check(paths.ACCEPTING, 0), *batch])
                operations = operations[len(batch) :]
    raise ConnectionLost


def _raised_members(image: ClusterImage, history: History) -> Iterator[Operation]:
    for one in [*image.members.values(), *image.former.values()]:
        if one.epoch < history.broker_epoch:
            state = one.state if one.state is BrokerState.UNREGISTERED else BrokerState.FENCED
            raised = replace(one, epoch=history.broker_epoch, state=state)
            yield Put(paths.member(one.broker_id), encode_member(raised), one.version)


def _raised_partitions(image: ClusterImage, history: History) -> Iterator[Operation]:
    for topic in image.topics_by_id.values():
        for number, state in enumerate(topic.partitions):
            if state.leader_epoch < history.leader_epoch:
                yield write_partition(topic.topic_id, number, raised(state, history))


def raised(state: PartitionState, history: History) -> PartitionState:
    """The state in the new history, without a leader until the brokers are back. Of several replicas the one with the
    longest log is to lead: the ISR is as of the time of the snapshot."""
    raised = replace(
        state,
        leader=NO_LEADER,
        leader_epoch=history.leader_epoch,
        incarnation=bytes(16),
        last_known_leader=state.last_known_leader if state.leader == NO_LEADER else state.leader,
        processes=(),
    )
    if len(state.replicas) == 1:
        return raised
    suspect_replicas = tuple((one, *NO_LOG) for one in sorted(state.replicas))
    return replace(raised, isr=state.replicas, elr=(), suspect_replicas=suspect_replicas, recount=True)


async def _drop_changes(store: MetadataStore) -> None:
    """Delete all changes but the newest, which keeps others from writing. A broker must not find the change again that
    its image ends with."""
    names = (await store.children(paths.CHANGES))[:-1]
    for start in range(0, len(names), BATCH_OPERATIONS_MAX):
        batch = names[start : start + BATCH_OPERATIONS_MAX]
        await commit(store, [Delete(f"{paths.CHANGES}/{name}") for name in batch])


async def _finish(store: MetadataStore, cluster_id: str, history: History) -> None:
    image = (await load(store, cluster_id)).image
    [known, producers, features] = await store.read_many([paths.HISTORY, paths.PRODUCER_IDS, paths.FEATURES])
    value, ids = encode_history(history), encode_producer_ids(history.next_producer_id)
    epoch = encode_controller_epoch(NO_CONTROLLER, history.controller_epoch, image.extra_of(paths.CONTROLLER_EPOCH))
    new_history = Create(paths.HISTORY, value) if known is None else Put(paths.HISTORY, value, known.version)
    new_producer_ids = (
        Create(paths.PRODUCER_IDS, ids) if producers is None else Put(paths.PRODUCER_IDS, ids, producers.version)
    )
    versions = () if features is None else range(features.version, features.version + FEATURES_RAISES)
    last: list[Operation] = [
        Delete(paths.ACCEPTING, 0),
        new_history,
        new_producer_ids,
        Put(paths.CONTROLLER_EPOCH, epoch, image.singles[paths.CONTROLLER_EPOCH].version),
        *(Put(paths.FEATURES, features.value, version) for version in versions if features is not None),
        Create(paths.CLUSTER, encode_cluster(cluster_id)),
        Delete(paths.change(image.version)),
        Create(paths.change(history.first_change), _marker(history)),
    ]
    await commit(store, last)


def _marker(history: History) -> bytes:
    """The value of a change that no running broker follows."""
    return encode_change(Change(OPERATOR, bytes.fromhex(history.history_id)))
