"""The remote tier of a run: its object store, checks now and then of the broker's files, and the final check of the
bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import trio

from engine.tier import TierableLog
from kafkawire.tests.simulation.checker import Anomaly
from kafkawire.tests.simulation.history import Place, StoredRecord
from kafkawire.tests.simulation.lives import Lives
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.tier_checker import Objects, TieredLog, check_bucket, newest, uncovered
from kafkawire.tests.simulation.tier_plan import ROOT, TierPlan
from kafkawire.tests.simulation.tier_store import STARTS, TierStore, is_segment
from kafkawire.tests.simulation.transaction_history import TransactionHistory
from tiering import names
from tiering.stores.memory import MemoryStore

CHECK_INTERVAL_S = 0.2
SETTLE_WITHIN_S = 200.0


@dataclass
class Tier:
    """The remote tier of a run; it does nothing in a run without a tier."""

    plan: TierPlan
    shared: Shared
    lives: Lives
    objects: MemoryStore
    segments: set[str] = field(default_factory=set)  # all segments that were ever there
    _seen: dict[str, int] = field(default_factory=dict)  # local starts

    def __post_init__(self) -> None:
        self._store = TierStore(self.plan, self.shared, self.objects)

    async def run(self) -> None:
        """Change the state of the store, and check the broker, until the load is over."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._store.run)
            while not self.shared.is_over:
                self._check()
                await trio.sleep(CHECK_INTERVAL_S)

    def heal(self) -> None:
        self._store.heal()

    def _check(self) -> None:
        """Check that no log loses files before they are copied, and that no log dir goes offline because of the
        store."""
        troubles, objects = self.shared.history.troubles, self._objects()
        self.segments.update(key for key in objects if is_segment(key))
        for log in self._logs():
            if self._seen.get(log.name) != log.local_start:
                self._seen[log.name] = log.local_start
                troubles += [f"{one.kind}: {one.detail}" for one in uncovered(log, newest(objects, log.place))]
        broker = self.lives.broker
        if broker is not None and not self.lives.world.disk.was_hit:
            reasons = {one.path: one.offline_reason for one in broker.store.statistics()}
            troubles += [f"{path} is offline: {reason}" for path, reason in reasons.items() if reason is not None]

    def _objects(self) -> Objects:
        return {key: data for key, (data, _) in self.objects.objects.items()}

    def _logs(self) -> Iterator[TieredLog]:
        broker = self.lives.broker
        for log in () if broker is None else broker.store.tierable():
            if log.config.remote_storage:
                partition = log.partition
                place = self._place(partition.topic_id, partition.partition)
                starts = log.log_start_offset, log.local_start_offset, log.tiered_to
                yield TieredLog(f"{partition.topic}-{partition.partition}", place, *starts)

    def _place(self, topic_id: bytes, partition: int) -> names.Place:
        assert self.lives.broker is not None
        return names.Place(ROOT, self.lives.broker.coordinator.image.cluster_id, topic_id, partition)

    # The final check

    async def wait_until_done(self) -> None:
        """Wait until the broker has finished its work on the tier, and no request is under way."""
        if not self.plan.is_on:
            return
        with trio.move_on_after(SETTLE_WITHIN_S) as waited:
            while remaining := list(self._remaining_work()):
                await trio.sleep(1.0)
        if waited.cancelled_caught:
            self.shared.history.troubles.append(f"the tier does not come to rest: {remaining}")

    def _remaining_work(self) -> Iterator[str]:
        objects, broker = self._objects(), self.lives.broker
        assert broker is not None
        yield from (f"{one.partition.topic} is to be copied" for one in broker.store.tierable() if _is_behind(one))
        for log in self._logs():
            manifest = newest(objects, log.place)
            if manifest.doomed:
                yield f"{log.name} has {len(manifest.doomed)} to delete"
            if manifest.version and manifest.log_start < log.log_start:
                yield f"{log.name} begins later"

    def judge(
        self, final: Mapping[Place, Mapping[int, StoredRecord]], transactions: TransactionHistory
    ) -> list[Anomaly]:
        """Anomalies of the bucket, compared with the last reads of consumers."""
        if not self.plan.is_on:
            return []
        objects = self._objects()
        self.segments.update(key for key in objects if is_segment(key))
        logs = [self._with_records(log, final, transactions) for log in self._logs()]
        alive = {log.place.topic_id for log in logs}
        gone = [
            self._place(topic_id, number).prefix
            for topic_id, topic in self.shared.history.topics.items()
            for number in range(topic.partition_count)
            if topic_id not in alive
        ]
        return check_bucket(objects, logs, [STARTS[0], *gone])

    def _with_records(
        self, log: TieredLog, final: Mapping[Place, Mapping[int, StoredRecord]], transactions: TransactionHistory
    ) -> TieredLog:
        records = final.get(Place(log.place.topic_id, log.place.partition))
        if records is not None:
            return log._replace(records={offset: one.value for offset, one in records.items()})
        for target, seen in transactions.final.items():
            if f"{target.topic}-{target.partition}" == log.name:
                return log._replace(records={one.offset: one.value for one in seen}, is_whole=False)
        return log


def _is_behind(log: TierableLog) -> bool:
    return log.config.remote_storage and bool(log.to_copy())
