"""This broker's partitions as the coordinator sees them: the engine's store behind `coordinator.api.PartitionHost`.

The store is made when the cluster id is known, at the coordinator's first call, because every log dir carries that id
and a foreign one refuses to start. A partition that cannot be opened is left out and logged; the others go on. When
what topics default to is changed at run time, every open partition is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from coordinator.api import ClusterImage
from coordinator.ports import Held, Holding, HostChanges, HostedPartition
from engine.api import Following, Leadership, Role, TopicPartition
from engine.errors import EngineError, UnknownPartition
from engine.log_config import FlushPolicy, LogConfig
from engine.partitions.opening import Opening
from engine.replication.confirmations import LEASE_MS
from engine.roles import Confirming, Others
from engine.store import SegmentStore
from engine.tier import TierableLog
from kafkawire.adapters.succession import Succession
from kafkawire.config.broker_config import Config
from kafkawire.config.effective import EffectiveConfigs
from kafkawire.replication.committed import committed_of

NOTHING = -1, -1

_log = structlog.get_logger(__name__)


class Opened(NamedTuple):
    """A partition that is open, or is to be. `waits`: see `engine.roles.Others`."""

    hosted: HostedPartition
    is_led: bool
    waits: bool = False

    def role(self, config: LogConfig, image: ClusterImage, lag_max_ms: int, confirming: Confirming | None) -> Role:
        """Of this broker, with its topic's config."""
        partition, state = _identity(self.hosted), self.hosted.state
        epoch, has_others = state.leader_epoch, len(state.replicas) > 1
        if not self.is_led:
            return Following(partition, config, epoch, has_others, state.unclean_since)
        committed = committed_of(image, partition.topic_id, state) if has_others else None
        others = None if committed is None else Others(state.leader, committed, lag_max_ms, confirming, self.waits)
        return Leadership(partition, config, epoch, others)


class _OnDisk(NamedTuple):
    """The directories of partitions in log dirs that are online, and whether that is all log dirs."""

    names: set[str]
    is_complete: bool


class EngineHost:
    """Opens and deletes partitions in the store. `start_store` makes and runs the store for a cluster.

    `on_change` is told the broker's configuration when it was changed at run time. `confirming`: None if this broker
    stands alone.
    """

    def __init__(
        self,
        start_store: Callable[[ClusterImage], Awaitable[SegmentStore]],
        configs: EffectiveConfigs,
        on_change: Callable[[Config], None],
        confirming: Confirming | None = None,
    ) -> None:
        self._start_store = start_store
        self._configs = configs
        self._on_change = on_change
        self._confirming = confirming
        self._store: SegmentStore | None = None
        self._open: dict[TopicPartition, Opened] = {}
        self._hosted: dict[TopicPartition, HostedPartition] = {}  # open or not
        self._away: set[TopicPartition] = set()  # may be in a log dir that is offline: another log of it is never made
        self._image: ClusterImage | None = None  # of the last changes
        self._succession = Succession()
        self._outwaits_at_ms = 0

    @property
    def has_store(self) -> bool:
        """Whether the coordinator has started so far that there is a store."""
        return self._store is not None

    @property
    def store(self) -> SegmentStore:
        """The store; there is one once the coordinator has started."""
        assert self._store is not None, "the coordinator has not started"
        return self._store

    def tierable(self, *, is_led: bool) -> Iterable[TierableLog]:
        """The partitions as a remote tier sees them: none, as long as there is no store."""
        return () if self._store is None else self._store.tierable(is_led=is_led)

    async def start(self, image: ClusterImage) -> Sequence[str]:
        """Starts the store and removes what deleted topics left on disk, and what has moved elsewhere meanwhile."""
        self._store = await self._start_store(image)
        await self._store.remove_strays(lambda topic_id, number: self._is_here(image, topic_id, number))
        return [one.directory_id for one in self._store.statistics() if one.directory_id]

    def _is_here(self, image: ClusterImage, topic_id: bytes, number: int) -> bool:
        """A partition that its topic does not have yet may be about to be made."""
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            return False
        return number >= len(topic.partitions) or self._configs.config.node_id in topic.partitions[number].replicas

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[Held]:
        """See `coordinator.ports.PartitionHost`."""
        if image.broker_configs:
            await self.configure(image.broker_configs)
        self._image = image
        on_disk = self._on_disk()
        await self._open_all([Opened(one, is_led=False) for one in hosted if _name(one) in on_disk.names])
        self._hosted = {_identity(one): one for one in hosted}
        gone = on_disk.names - self._on_disk().names  # with a log dir that has failed meanwhile
        found = [
            Held(one.hosted, Holding.LOST, NOTHING) if _name(one.hosted) in gone else one
            for one in self._held(hosted, on_disk)
        ]
        self._away = {_identity(one.hosted) for one in found if one.holding is Holding.LOST}
        return found

    @property
    def outwaits_in_ms(self) -> int:
        """See `coordinator.ports.PartitionHost`."""
        return 0 if self._confirming is None else max(0, self._outwaits_at_ms - self._confirming.boot_ms())

    def lost(self) -> Sequence[Held]:
        """See `coordinator.ports.PartitionHost`."""
        on_disk = self._on_disk()
        if on_disk.is_complete:
            return ()
        return self._held([one for one in self._hosted.values() if _name(one) not in on_disk.names], on_disk)

    def _on_disk(self) -> _OnDisk:
        log_dirs = self.store.statistics()
        online = [one for one in log_dirs if one.offline_reason is None]
        return _OnDisk({name for one in online for name in one.names}, len(online) == len(log_dirs))

    def _held(self, hosted: Sequence[HostedPartition], on_disk: _OnDisk) -> list[Held]:
        configs = self._log_configs(hosted)
        return [self._held_of(one, configs[one.topic_id], on_disk) for one in hosted]

    def _held_of(self, hosted: HostedPartition, config: LogConfig, on_disk: _OnDisk) -> Held:
        if _name(hosted) not in on_disk.names:
            return Held(hosted, Holding.MISSING if on_disk.is_complete else Holding.LOST, NOTHING)
        try:
            opening = self.store.replica(_identity(hosted)).opening
        except EngineError:
            return Held(hosted, Holding.DAMAGED, NOTHING)
        assert opening is not None, "it was opened by the store"
        return Held(hosted, _judged(config, opening), (opening.last_epoch, opening.end_offset))

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over what brokers are configured for at run time."""
        before = self._configs.log_defaults
        self._configs.change(broker_configs)
        self._on_change(self._configs.config)
        if self._configs.log_defaults != before:
            await self._open_all(list(self._open.values()))

    async def apply(self, changes: HostChanges) -> None:
        """Deletes, follows and leads."""
        self._image = changes.image
        for hosted in changes.dropped:
            self._open.pop(_identity(hosted), None)
            self._hosted.pop(_identity(hosted), None)
            self._succession.forget(_identity(hosted))
        errors = await self.store.delete_partitions([_identity(hosted) for hosted in changes.dropped])
        for hosted, error in zip(changes.dropped, errors, strict=True):
            if error is not None and not isinstance(error, UnknownPartition):
                _log.error("partition not deleted", partition=_name(hosted), reason=str(error))
        self._hosted |= {_identity(one): one for one in (*changes.followed, *changes.led)}
        led = [Opened(one, is_led=True, waits=self._waits(one, changes.image)) for one in changes.led]
        for hosted in (*changes.followed, *changes.led):
            self._succession.note(_identity(hosted), hosted.state, changes.image)
        await self._open_all([*(Opened(one, is_led=False) for one in changes.followed), *led])
        if self._confirming is not None and any(one.waits for one in led):
            self._outwaits_at_ms = self._confirming.boot_ms() + LEASE_MS

    def _waits(self, hosted: HostedPartition, image: ClusterImage) -> bool:
        """Whether it is led in a new epoch, and whoever led it before may answer still."""
        known, state = self._open.get(_identity(hosted)), hosted.state
        if known is not None and known.is_led and known.hosted.state.leader_epoch == state.leader_epoch:
            return False
        return state.leader_epoch > 0 and not self._succession.has_left(_identity(hosted), state, image)

    async def _open_all(self, opened: Sequence[Opened]) -> None:
        here = []
        for one in opened:
            if _identity(one.hosted) in self._away:
                self._note_offline(one.hosted, "its log is on a log dir that is offline")
            else:
                here.append(one)
        outcomes = await self.store.open_partitions(self._roles(here)) if here else ()
        for one, outcome in zip(here, outcomes, strict=True):
            if isinstance(outcome, EngineError):
                self._note_offline(one.hosted, str(outcome))
            else:
                self._open[_identity(one.hosted)] = one

    def _note_offline(self, hosted: HostedPartition, reason: str) -> None:
        self._open.pop(_identity(hosted), None)
        _log.error("partition is offline", partition=_name(hosted), reason=reason)

    def _roles(self, opened: Sequence[Opened]) -> list[Role]:
        configs = self._log_configs([one.hosted for one in opened])
        assert self._image is not None, "nothing is opened before there are changes"
        lag_max_ms = self._configs.config.replica_lag_time_max_ms
        around = self._image, lag_max_ms, self._confirming
        return [one.role(configs[one.hosted.topic_id], *around) for one in opened]

    def _log_configs(self, hosted: Iterable[HostedPartition]) -> dict[bytes, LogConfig]:
        """By topic id: that of all partitions of a topic is the same."""
        topics = {one.topic_id: one for one in hosted}
        return {key: self._configs.log_config(one.topic, one.configs) for key, one in topics.items()}


def _judged(config: LogConfig, opening: Opening) -> Holding:
    if opening.is_damaged:
        return Holding.DAMAGED
    if config.flush_policy is FlushPolicy.ASYNC:
        return Holding.WHOLE if opening.is_clean else Holding.UNSURE
    return Holding.SHORT if opening.is_short else Holding.WHOLE


def _identity(hosted: HostedPartition) -> TopicPartition:
    return TopicPartition(hosted.topic_id, hosted.topic, hosted.partition)


def _name(hosted: HostedPartition) -> str:
    return f"{hosted.topic}-{hosted.partition}"
