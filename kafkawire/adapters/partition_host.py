"""The partition host of the control plane: implements `coordinator.ports.PartitionHost` with the engine's store.

The store is created at the control plane's first call, when the cluster id is known: each log dir has that id, and a
log dir of another cluster refuses the start. A partition that cannot be opened is reported and opened again later; the
others go on. When topic defaults change at run time, each open partition gets its new config.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import structlog
import trio

from coordinator.api import ClusterImage, PartitionState
from coordinator.ports import FoundLog, HostChanges, HostedPartition, LogCondition
from engine.api import Role, TopicIdPartition
from engine.errors import EngineError, StorageError, UnknownPartition
from engine.log_config import LogConfig
from engine.store import SegmentStore
from engine.tier import TierableLog
from engine.waiting_reads import ConfirmationInputs
from kafkawire.adapters.dir_changes import Change, DirWorker
from kafkawire.adapters.dir_workers import NO_ANSWER, DirWorkers
from kafkawire.adapters.fates import decide_fate
from kafkawire.adapters.followed_change import FollowedChange, MetadataFollower
from kafkawire.adapters.holdings import NOTHING, OnDisk, found_logs, on_disk
from kafkawire.adapters.hosted import HostDeps, Opened, Vanished, identity, name_of, with_newest_isr
from kafkawire.adapters.role_log import RoleLog
from kafkawire.adapters.unserved import Unserved
from kafkawire.config.broker_config import Config
from kafkawire.config.effective import EffectiveConfigs

AWAY = "its log is on a log dir that is offline"

_log = structlog.get_logger(__name__)


class EngineHost:
    """Opens and deletes partitions in the store, in each log dir separately (decision 44). `start_store` creates and
    runs the store for a cluster.

    `on_change` is called with the broker's configuration when it was changed at run time. `confirming`: None if this
    broker stands alone.
    """

    def __init__(
        self,
        start_store: Callable[[ClusterImage], Awaitable[SegmentStore]],
        configs: EffectiveConfigs,
        on_change: Callable[[Config], None],
        deps: HostDeps,
        confirming: ConfirmationInputs | None = None,
    ) -> None:
        self._start_store = start_store
        self._configs = configs
        self._on_change = on_change
        self._deps = deps
        self._confirming = confirming
        self._store: SegmentStore | None = None
        self._open: dict[TopicIdPartition, Opened] = {}
        self._hosted: dict[TopicIdPartition, HostedPartition] = {}  # open or not
        self._away: set[TopicIdPartition] = set()  # maybe in an offline log dir: no other log of them is created
        self._unserved = Unserved[Opened]()
        self._workers: DirWorkers | None = None
        self._reopened: dict[TopicIdPartition, FoundLog] = {}  # open again, until that is reported
        self.has_unserved_changes = False  # see `coordinator.ports.PartitionHost`
        self._image: ClusterImage | None = None  # of the last changes
        self._role_log = RoleLog()
        self._followed: FollowedChange | None = None

    @property
    def has_store(self) -> bool:
        """Whether the control plane has started so far that there is a store."""
        return self._store is not None

    @property
    def store(self) -> SegmentStore:
        """The store. The control plane must have started."""
        assert self._store is not None, "the coordinator has not started"
        return self._store

    @property
    def workers(self) -> DirWorkers:
        """The queues of the log dirs. The control plane must have started."""
        assert self._workers is not None, "the coordinator has not started"
        return self._workers

    def _lag_s(self) -> float:
        return self._configs.config.replica_lag_time_max_ms / 1000

    def tierable(self, *, is_led: bool) -> Iterable[TierableLog]:
        """The partitions as a remote tier sees them: none, as long as there is no store."""
        return () if self._store is None else self._store.tierable(is_led=is_led)

    async def start(self, image: ClusterImage, deleted: Collection[bytes]) -> Sequence[str]:
        """Start the store, and delete, keep or set aside each log that it finds, by the metadata. Return the ids of the
        log dirs."""
        self._store = await self._start_store(image)
        self._store.on_closed = self._note_closed
        tasks = self._carry_out, self._deps.start_soon, self._note_late, self._lag_s
        self._workers = DirWorkers(self._store.log_dirs, self._store.changes, *tasks)
        await self._store.strays.apply_fates(partial(decide_fate, image, self._configs.config.node_id, deleted))
        return [one.directory_id for one in self._store.statistics() if one.directory_id]

    async def remember(self, cluster: MetadataFollower) -> None:
        """Keep the newest followed change of the metadata in the log dirs, for as long as the broker lives."""
        self._followed = FollowedChange(cluster, self.store)
        await self._followed.run()

    async def close(self) -> None:
        """Close the store. The control plane must have started."""
        if self._followed is not None:
            await self._followed.close()
        await self.store.close()

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[FoundLog]:
        """See `coordinator.ports.PartitionHost`."""
        if image.broker_configs:
            await self.configure(image.broker_configs)
        self._image = image
        there = on_disk(self.store)
        await self._open_all([Opened(one, is_led=False) for one in hosted if name_of(one) in there.names])
        self._hosted = {identity(one): one for one in hosted}
        gone = there.names - on_disk(self.store).names  # in a log dir that has failed meanwhile
        found = [
            FoundLog(one.hosted, LogCondition.AWAY, NOTHING) if name_of(one.hosted) in gone else one
            for one in self._found_logs(hosted, there)
        ]
        self._away = {identity(one.hosted) for one in found if one.condition is LogCondition.AWAY}
        for one in self._away:
            self._unserved.forget(one)
        self._reopened, self.has_unserved_changes = {}, False
        return found

    def take_unserved(self) -> Sequence[FoundLog]:
        """See `coordinator.ports.PartitionHost`."""
        gone, back = self._offline_partitions(), self._reopened
        self._reopened, self.has_unserved_changes = {}, False
        not_open = dict.fromkeys((*self._unserved, *self.workers.late))
        closed = [FoundLog(self._hosted[one], LogCondition.CLOSED, NOTHING) for one in not_open if one in self._hosted]
        return [*back.values(), *closed, *gone]

    def _offline_partitions(self) -> Sequence[FoundLog]:
        """The hosted partitions whose logs are on log dirs that are offline."""
        there = on_disk(self.store)
        if not there.away and not there.hides_any:
            return ()
        away = [one for one in self._hosted.values() if there.may_be_away(name_of(one))]
        coming = self.workers.waiting_for  # a log that is being created is not lost
        gone = self._found_logs([one for one in away if coming(identity(one)) is None], there)
        for one in gone:
            self._unserved.forget(identity(one.hosted))
            self.workers.late.pop(identity(one.hosted), None)
        return gone

    @property
    def has_unserved(self) -> bool:
        """See `coordinator.ports.PartitionHost`."""
        return bool(self._unserved)

    def not_served(self) -> Mapping[TopicIdPartition, str]:
        """The hosted partitions that this broker does not serve, each with the reason."""
        return (
            dict.fromkeys(self.workers.late, NO_ANSWER)
            | self._unserved.reasons()
            | {identity(one.hosted): AWAY for one in self._offline_partitions()}
        )

    def _note_closed(self, partition: TopicIdPartition) -> None:
        """Note that the store has closed a log, on a log dir that is online."""
        opened = self._open.pop(partition, None)
        if opened is not None:
            self._note_offline(opened, self._why_closed(partition))

    def _why_closed(self, partition: TopicIdPartition) -> EngineError:
        try:
            self.store.replica(partition)
        except EngineError as error:
            return error
        return StorageError("it is being opened")

    async def open_again(self, image: ClusterImage) -> None:
        """See `coordinator.ports.PartitionHost`. No log is opened again as a leader: its state is reported first."""
        due: defaultdict[DirWorker, list[Opened]] = defaultdict(list)
        for partition, opened in self._unserved.due().items():
            state = image.partition(partition.topic, partition.partition)
            if state is not None and not opened.is_led and self._is_reported_offline(state):
                worker = self._worker_of(opened)
                if worker is not None and not worker.is_reopening and worker.changes.newest(partition) is None:
                    due[worker].append(opened)
        for worker, there in due.items():
            self._begin_to_open_again(worker, there)
        await trio.lowlevel.checkpoint()

    def _begin_to_open_again(self, worker: DirWorker, closed: Sequence[Opened]) -> None:
        """Open closed logs in a task of their own, beside other changes in that log dir: a scan may take minutes."""
        worker.is_reopening = True
        worker.changes.hold(one.key for one in closed)
        self._deps.start_soon(partial(self._open_there_again, worker, closed))

    async def _open_there_again(self, worker: DirWorker, closed: Sequence[Opened]) -> None:
        await self._open_here(closed, worker)
        self._note_roles(closed)
        worker.changes.release(one.key for one in closed)
        worker.is_reopening = False
        worker.wake()
        if self.has_unserved_changes:
            self._deps.control_plane().note_loss()

    def _note_roles(self, wanted: Iterable[Opened]) -> None:
        """Log the new roles of the partitions that have taken them."""
        self._role_log.note((one.hosted, one.is_led) for one in wanted if self._open.get(one.key) is one)

    def _is_reported_offline(self, state: PartitionState) -> bool:
        """Whether the metadata say that this broker does not serve the partition."""
        return self._configs.config.node_id in state.offline

    def _found_logs(self, hosted: Sequence[HostedPartition], there: OnDisk) -> list[FoundLog]:
        return found_logs(self.store, hosted, self._log_configs(hosted), there)

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Adopt the broker configs that were set at run time."""
        before = self._configs.log_defaults
        self._configs.change(broker_configs)
        self._on_change(self._configs.config)
        if self._configs.log_defaults != before:
            for one in list(self._open.values()):
                self._queue(self.workers.newest(one))
            await self._until_applied()

    async def apply(self, changes: HostChanges) -> None:
        """See `coordinator.ports.PartitionHost`."""
        self._image = changes.image
        for hosted in changes.dropped:
            self._drop(hosted, hosted)
        for hosted in changes.vanished:
            self._drop(hosted, Vanished(hosted))
        self._hosted |= {identity(one): one for one in (*changes.followed, *changes.led)}
        for one in changes.led:
            if one.state.unclean_since == one.state.leader_epoch:
                self.store.accept_loss(identity(one))
        for one in changes.followed:
            self._queue(Opened(one, is_led=False))
        for one in changes.led:
            self._queue(Opened(one, is_led=True))
        await self._until_applied()

    def _drop(self, hosted: HostedPartition, change: HostedPartition | Vanished) -> None:
        key = identity(hosted)
        for known in (self._open, self._hosted, self._reopened):
            known.pop(key, None)
        self._unserved.forget(key)
        self.workers.drop(key, change)

    def _queue(self, opened: Opened) -> None:
        """Queue a role at the worker of the partition's log dir."""
        if opened.key in self._away:
            _log.error("partition is offline", partition=name_of(opened.hosted), reason=AWAY)
        elif (worker := self._worker_of(opened)) is not None:
            worker.queue(opened.key, opened)

    def _worker_of(self, opened: Opened) -> DirWorker | None:
        """The worker of the partition's log dir; None if it has none, and then the partition is noted as offline."""
        try:
            return self.workers.of(opened)
        except StorageError as error:
            self._open.pop(opened.key, None)
            self._note_offline(opened, error)
            return None

    async def _until_applied(self) -> None:
        if await self.workers.until_applied():
            self.has_unserved_changes = True

    def _note_late(self, worker: DirWorker) -> None:
        self.workers.stop_serving(worker, self._open.values())
        self.has_unserved_changes = True
        self._deps.control_plane().note_loss()

    async def _carry_out(self, worker: DirWorker, batch: Mapping[TopicIdPartition, Change]) -> None:
        """Delete logs and set strays aside, and then open the others in their new roles."""
        changes = batch.values()
        replaced = [one.replaces if isinstance(one, Opened) else one for one in changes]
        if dropped := [one for one in replaced if isinstance(one, HostedPartition)]:
            await self._delete(dropped)
        if vanished := [one.hosted for one in replaced if isinstance(one, Vanished)]:
            await self.store.strays.set_aside(list(map(identity, vanished)))
        # The replaced log is gone. If the same role is queued again, it must not delete its own log.
        wanted = [one._replace(replaces=None) for one in changes if isinstance(one, Opened)]
        await self._open_all([one for one in wanted if worker.changes.is_newest(one.key)], worker)
        self._note_roles(wanted)
        if self.has_unserved_changes:
            self._deps.control_plane().note_loss()

    async def _delete(self, dropped: Sequence[HostedPartition]) -> None:
        errors = await self.store.delete_partitions([identity(hosted) for hosted in dropped])
        self._role_log.note_deleted([hosted for hosted, error in zip(dropped, errors, strict=True) if error is None])
        for hosted, error in zip(dropped, errors, strict=True):
            if error is not None and not isinstance(error, UnknownPartition):
                _log.error("partition not deleted", partition=name_of(hosted), reason=str(error))

    async def _open_all(self, opened: Sequence[Opened], worker: DirWorker | None = None) -> None:
        """Open partitions. A closed log is opened again in a task of its own, and only when the metadata call its
        replica offline."""
        here, closed = [], []
        for one in opened:
            if one.key not in self._unserved:
                here.append(one)
            elif worker is None or worker.is_reopening or one.is_led or not self._is_reported_offline(one.hosted.state):
                self._unserved.assume(one.key, one, one.leader_epoch)
                self.workers.late.pop(one.key, None)
            else:
                closed.append(one)
        if worker is not None and closed:
            self._begin_to_open_again(worker, closed)
        if here:
            await self._open_here(here, worker)

    async def _without_strays(self, wanted: Sequence[Opened], worker: DirWorker | None) -> list[Opened]:
        """Put back the strays of wanted partitions, and note them as offline. The metadata must say so before they are
        opened (RULES K8). Return the other partitions, without those that were dropped meanwhile."""
        reasons = await self.store.strays.put_back([one.key for one in wanted])
        if worker is not None:
            wanted = [one for one in wanted if worker.changes.is_newest(one.key) and one.key in self._hosted]
        for one in wanted:
            if (reason := reasons.get(one.key)) is not None:
                self._open.pop(one.key, None)
                self.workers.late.pop(one.key, None)
                self.store.changes.forget_home(one.key)
                self._note_offline(one, StorageError(reason))
        return [one for one in wanted if one.key not in reasons]

    async def _open_here(self, wanted: Sequence[Opened], worker: DirWorker | None = None) -> None:
        """Open the logs, or give open logs their roles. `worker`: of their log dir, None during recovery. A partition
        with a newer role in the queue stays as it is."""
        here = await self._without_strays(wanted, worker)
        again = {key for one in here if (key := one.key) in self._unserved}
        newest = partial(self._newest_role, worker)
        outcomes = await self.store.open_partitions(self._roles(here), again=again, newest=newest)
        there = on_disk(self.store)
        for one, outcome in zip(here, outcomes, strict=True):
            if worker is not None and not worker.changes.is_newest(one.key):
                continue
            if isinstance(outcome, EngineError):
                self._open.pop(one.key, None)
                self.workers.late.pop(one.key, None)
                self._note_offline(one, outcome)
            else:
                self._note_open(one, there)

    def _newest_role(self, worker: DirWorker | None, role: Role) -> Role | None:
        """The role with the newest ISR; None if a newer role waits."""
        if worker is None:
            return role
        return with_newest_isr(role, self._newest_image()) if worker.changes.is_newest(role.partition) else None

    def _newest_image(self) -> ClusterImage:
        assert self._image is not None, "nothing is opened before there are changes"
        return max(self._image, self._deps.control_plane().image, key=lambda one: one.version)

    def _note_open(self, one: Opened, there: OnDisk) -> None:
        """Note an open partition, and report it if the metadata say, or are about to say, that it does not serve."""
        key, was_open, was_late = one.key, one.key in self._open, one.key in self.workers.late
        self._open[key] = one
        self.workers.late.pop(key, None)
        if self._unserved.served(key) or ((was_late or self._is_reported_offline(one.hosted.state)) and not was_open):
            [self._reopened[key]] = self._found_logs([one.hosted], there)
            _log.info("partition is open again", partition=name_of(one.hosted))
        elif was_late:
            self._reopened[key] = FoundLog(one.hosted, LogCondition.STAYED_OPEN, NOTHING)
        else:
            return
        self.has_unserved_changes = True

    def _note_offline(self, opened: Opened, error: EngineError) -> None:
        """Note and report a replica that is not open. Replicas on offline log dirs are found by
        `_offline_partitions`."""
        hosted, key = opened.hosted, identity(opened.hosted)
        self._reopened.pop(key, None)
        self._role_log.note_closed(hosted)
        self.has_unserved_changes = True
        if self._unserved.note(key, opened, hosted.state.leader_epoch, error):
            _log.error("partition is offline", partition=name_of(hosted), reason=str(error))

    def _roles(self, opened: Sequence[Opened]) -> list[Role]:
        configs = self._log_configs([one.hosted for one in opened])
        lag_max_ms = self._configs.config.replica_lag_time_max_ms
        context = self._newest_image(), lag_max_ms, self._confirming
        return [one.role(configs[one.hosted.topic_id], *context) for one in opened]

    def _log_configs(self, hosted: Iterable[HostedPartition]) -> dict[bytes, LogConfig]:
        """The log configs by topic id: all partitions of a topic have the same one."""
        topics = {one.topic_id: one for one in hosted}
        return {key: self._configs.log_config(one.topic, one.configs) for key, one in topics.items()}
