"""Restore of a broker's directories from its remote tier: `kafkawire tier restore`.

The steps: read the tier; fence its earlier owner; create the log dirs and the metadata, so that a broker starts with
all of it or not at all; start a hidden broker and commit the offsets of groups again. Log dirs that were kept, because
only the metadata were lost, stay as they are: they have more than the tier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from coordinator.errors import CoordinatorError
from coordinator.groups.api import Claim, OffsetToCommit
from coordinator.groups.commands import CommitOffsets
from coordinator.metadata.history import FIRST, History
from coordinator.metadata.unlogged_nodes import TierNode
from coordinator.transfer.restoration import RestoredCluster, RestoredTopic, write_cluster
from engine.api import TopicIdPartition
from engine.errors import EngineError, StoreRefused
from engine.files.io_workers import Workers
from engine.log_dirs.layout import Identity
from engine.log_dirs.restoration import KeptLog, RestoredLog, is_used, kept_logs, restore_log_dir
from engine.logs.producers.snapshot import decode_snapshot
from kafkawire.adapters.followed_change import last_followed
from kafkawire.adapters.metadata import metadata_directory
from kafkawire.adapters.tier import store_workers
from kafkawire.broker import Broker, BrokerFailed, StartError
from kafkawire.config.broker_config import load
from kafkawire.config.security.listener_keys import is_prefixed
from kafkawire.process.tier_part import TierUnknown, open_part, survey
from kafkawire.requests.futures import until_settled
from kafkawire.run_broker import run_broker
from tiering.cluster_objects import ClusterObjects
from tiering.errors import TierError
from tiering.inventory.inventory import Part, PartitionHolding, TopicHolding, take_over_partition
from tiering.manifest.manifest import Fence
from tiering.manifest.manifest_log import Author
from tiering.object_store import ObjectExists, StoreError
from tiering.ownership import newest_owner, take_over
from tiering.parallel import for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkawire.config.broker_config import Config
    from kafkawire.deps import Deps
    from tiering.cluster_objects import CommittedCopy, OffsetsCopy

EPOCH_MARGIN = 1_000  # each start of a leader takes one; the tier may lack the last ones
PRODUCER_ID_MARGIN = 1_000_000  # ids that were given out since the last one in the tier
COMMITTED_TOGETHER_MAX = 500
OF_OTHER_LISTENERS = ("listeners", "advertised.listeners", "http.listeners")
AT_ONCE = 16


class RestoreRefused(Exception):
    """Refusal of a restore.

    Nothing was changed, or the text says what to remove first. The text is the operator's line.
    """


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Content of the tier that will be restored. `problems` are parts that cannot be restored."""

    part: Part
    owner_generation: int
    topics: Sequence[TopicHolding]
    offsets: Sequence[OffsetsCopy]
    problems: Sequence[str]

    def partitions(self) -> Iterator[tuple[TopicHolding, int, PartitionHolding]]:
        for topic in self.topics:
            for number, holding in enumerate(topic.partitions):
                assert not isinstance(holding, str)
                yield topic, number, holding


@dataclass(slots=True)
class Restored:
    """Result of a restore."""

    offsets: int = 0
    clamped: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Restoration:
    """Restore of the broker of `config`. `on_progress` gets lines about the progress."""

    config: Config
    deps: Deps
    on_progress: Callable[[str], None]

    async def plan(self, cluster_id: str | None) -> RestorePlan:
        """Read the tier; change nothing.

        `cluster_id` may be None if the tier has one cluster. Raises RestoreRefused.
        """
        if self.config.is_in_cluster:
            raise RestoreRefused("zookeeper.connect: only a broker without ZooKeeper can be restored")
        try:
            return await self._plan(cluster_id)
        except (StoreError, TierError, TierUnknown) as error:
            raise RestoreRefused(str(error)) from error

    async def _plan(self, cluster_id: str | None) -> RestorePlan:
        part = await open_part(self.config, self.deps, cluster_id)
        newest = await newest_owner(part.store, part.root, part.cluster_id)
        topics: list[TopicHolding] = []
        problems: list[str] = []
        for found in await survey(part, self.on_progress):
            name = found.topic.topic
            bad = [f"{name}-{number}: {one}" for number, one in enumerate(found.partitions) if isinstance(one, str)]
            problems += bad
            topics += [] if bad else [found]
        if newest is None and not topics:
            raise RestoreRefused(f"tier.store: {self.config.tier_store} has nothing of cluster {part.cluster_id}")
        offsets = await ClusterObjects(part.store, part.root, part.cluster_id).offsets()
        return RestorePlan(part, (newest or 0) + 1, topics, offsets, problems)

    async def carry_out(self, plan: RestorePlan) -> Restored:
        """Carry out the plan. Raises RestoreRefused."""
        try:
            kept = await self._kept(plan)
            await self._fence(plan)
            if kept is None:
                await self._make_log_dirs(plan)
            await self._write_metadata(plan, kept or [])
        except ObjectExists as error:
            raise RestoreRefused(f"another process restores this cluster: {error}") from error
        except (StoreError, TierError, EngineError, StoreRefused, CoordinatorError, OSError) as error:
            raise RestoreRefused(str(error)) from error
        return Restored() if kept is not None else await self._commit_offsets(plan)

    async def _kept(self, plan: RestorePlan) -> list[KeptLog] | None:
        """Logs in kept log dirs; None if the log dirs are empty. Raises RestoreRefused, and the errors of log dirs."""
        paths = [str(path.absolute()) for path in self.config.log_dirs]
        used = [path for path in paths if is_used(self.deps.filesystem, path)]
        metadata = str(metadata_directory(self.config))
        if is_used(self.deps.filesystem, metadata):
            raise RestoreRefused(f"{metadata} is not empty: it has the metadata of a cluster, or the rest of them")
        if not used:
            return None
        if len(used) < len(paths):
            raise RestoreRefused(f"{used[0]} is not empty, and other log dirs are: all have to be there, or none")
        identity = Identity(plan.part.cluster_id, self.config.node_id)
        kept = [one for path in paths for one in kept_logs(self.deps.filesystem, path, identity)]
        there = {(one.partition.topic_id.hex(), one.partition.partition) for one in kept}
        for topic, number, holding in plan.partitions():
            if holding.segments and (topic.topic.topic_id, number) not in there:
                name = f"{topic.topic.topic}-{number}"
                raise RestoreRefused(f"the log dirs have no partition {name}: move them away, and restore all of it")
        self.on_progress(f"the log dirs have {len(kept)} partitions of the cluster: they stay as they are")
        return kept

    async def _job(self, job: Callable[[], None]) -> None:
        await Workers(self.deps.pool, store_workers(self.config.tier_copiers)).run(job)

    async def _fence(self, plan: RestorePlan) -> None:
        part, deps, generation = plan.part, self.deps, plan.owner_generation
        self.on_progress(f"taking cluster {part.cluster_id} over, as its owner number {generation}")
        await take_over(part.store, part.root, part.cluster_id, generation, deps.now_ms())

        async def fence(holding: PartitionHolding) -> None:
            nonce = partial(_nonce, deps)
            author = Author(Fence(generation, _epoch(holding)), "restore", nonce, deps.now_ms)
            await take_over_partition(part, holding, author)

        await for_each((holding for _, _, holding in plan.partitions()), fence, AT_ONCE)

    async def _make_log_dirs(self, plan: RestorePlan) -> None:
        identity = Identity(plan.part.cluster_id, self.config.node_id)
        logs: list[list[RestoredLog]] = [[] for _ in self.config.log_dirs]
        for place, (topic, number, holding) in enumerate(plan.partitions()):
            partition = TopicIdPartition(bytes.fromhex(topic.topic.topic_id), topic.topic.topic, number)
            epochs = holding.manifest.epochs
            of_markers = holding.footer, _epoch(holding), self.deps.now_ms()
            one = RestoredLog(partition, holding.log_start, holding.end, epochs, holding.producers, *of_markers)
            logs[place % len(logs)].append(one)
        for path, restored in zip(self.config.log_dirs, logs, strict=True):
            self.on_progress(f"making {path}: {len(restored)} partitions")
            directory = str(path.absolute())
            await self._job(partial(restore_log_dir, self.deps.filesystem, directory, identity, restored))

    async def _write_metadata(self, plan: RestorePlan, kept: Sequence[KeptLog]) -> None:
        store = await self.deps.open_metadata(self.config)
        producer_ids = [_last_producer_id(holding) for _, _, holding in plan.partitions()]
        cluster = RestoredCluster(
            plan.part.cluster_id,
            TierNode(str(self.config.tier_store), plan.owner_generation),
            max(producer_ids, default=-1) + PRODUCER_ID_MARGIN,
            _topics(plan, kept),
            self._history(),
        )
        try:
            await write_cluster(store, self.config.node_id, cluster)
        finally:
            await store.close()

    def _history(self) -> History:
        """History of the new metadata. Its changes begin with 1 again, which is no rollback for kept log dirs."""
        known = last_followed(self.deps.filesystem, [str(path.absolute()) for path in self.config.log_dirs])
        if known is None:
            return FIRST
        return History(known.generation + 1, self.deps.random.getrandbits(128).to_bytes(16, "big").hex())

    # Committed offsets of groups

    async def _commit_offsets(self, plan: RestorePlan) -> Restored:
        """Commit offsets by a broker that listens on a random port of this machine."""
        restored = Restored()
        groups = _groups(plan, restored)
        if not groups:
            return restored
        self.on_progress(f"committing offsets of {len(groups)} groups")
        given = {
            key: value
            for key, value in self.config.given.items()
            if not (key in OF_OTHER_LISTENERS or is_prefixed(key))
        }
        config, _ = load({**given, "listeners": "PLAINTEXT://127.0.0.1:0", "http.listeners": ""})
        ready = trio.Event()
        brokers: list[Broker] = []

        def on_ready(broker: Broker) -> None:
            brokers.append(broker)
            ready.set()

        async def commit_all() -> None:
            await ready.wait()
            for group_id, offsets in groups.items():
                await _commit(brokers[0], group_id, offsets, restored)
            brokers[0].stop.set()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_all)
                await run_broker(config, self.deps, on_ready)
        except* (StartError, BrokerFailed) as group:
            raise RestoreRefused(f"the restored broker does not start: {group.exceptions[0]}") from None
        return restored


def _topics(plan: RestorePlan, kept: Sequence[KeptLog]) -> list[RestoredTopic]:
    """Topics of the tier, and topics of kept log dirs only; the configs of the latter are unknown."""
    epochs: dict[str, dict[int, int]] = {}
    names: dict[str, str] = {}
    configs: dict[str, dict[str, str]] = {}
    for one in kept:
        topic_id = one.partition.topic_id.hex()
        names[topic_id] = one.partition.topic
        epochs.setdefault(topic_id, {})[one.partition.partition] = one.leader_epoch + EPOCH_MARGIN
    for topic, number, holding in plan.partitions():
        copy = topic.topic
        names[copy.topic_id], configs[copy.topic_id] = copy.topic, copy.configs
        of_topic = epochs.setdefault(copy.topic_id, {})
        of_topic[number] = max(_epoch(holding), of_topic.get(number, 0))
    return [
        RestoredTopic(
            names[topic_id],
            bytes.fromhex(topic_id),
            [of_topic.get(number, EPOCH_MARGIN) for number in range(max(of_topic) + 1)],
            configs.get(topic_id, {}),
        )
        for topic_id, of_topic in epochs.items()
    ]


def _epoch(holding: PartitionHolding) -> int:
    return max(holding.leader_epoch, 0) + EPOCH_MARGIN


def _nonce(deps: Deps) -> str:
    return deps.random.randbytes(16).hex()


def _last_producer_id(holding: PartitionHolding) -> int:
    """The last producer id; -1 if there is none."""
    if not holding.producers:
        return -1
    return max((known for known, _ in decode_snapshot(holding.producers, holding.end).producers), default=-1)


def _groups(plan: RestorePlan, restored: Restored) -> Mapping[str, list[OffsetToCommit]]:
    """Offsets to commit by group, moved into the restored range of their partition."""
    known = {
        (topic.topic.topic_id, number): (topic.topic.topic, holding) for topic, number, holding in plan.partitions()
    }
    found: dict[str, list[OffsetToCommit]] = {}
    for copy in sorted(plan.offsets, key=lambda one: one.at_ms):
        for group_id, committed in copy.groups.items():
            kept = [
                _clamped(one, *known[one.topic_id, one.partition], restored)
                for one in committed
                if (one.topic_id, one.partition) in known
            ]
            if kept:
                found[group_id] = kept
    return found


def _clamped(one: CommittedCopy, topic: str, holding: PartitionHolding, restored: Restored) -> OffsetToCommit:
    offset = min(max(one.offset, holding.log_start), holding.end)
    restored.clamped += offset != one.offset
    return OffsetToCommit(topic, one.partition, offset, -1 if offset != one.offset else one.leader_epoch, one.metadata)


async def _commit(broker: Broker, group_id: str, offsets: Sequence[OffsetToCommit], restored: Restored) -> None:
    groups = broker.coordinators.groups
    try:
        await groups.coordinator_of(group_id)
        for start in range(0, len(offsets), COMMITTED_TOGETHER_MAX):
            some = offsets[start : start + COMMITTED_TOGETHER_MAX]
            pending = groups.ask(CommitOffsets(group_id, Claim("", None), some))
            await until_settled(pending)
            outcomes = pending.result()
            restored.offsets += sum(one is None for one in outcomes)
    except CoordinatorError as error:
        restored.problems.append(f"group {group_id}: {error}")
