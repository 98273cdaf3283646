"""The state of this broker's replicas after a start, from the names in its log dirs and the results of opening the
logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.ports import Held, Holding
from engine.errors import EngineError
from engine.log_config import FlushPolicy
from kafkawire.adapters.hosted import identity, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.ports import HostedPartition
    from engine.log_config import LogConfig
    from engine.partitions.opening import Opening
    from engine.store import SegmentStore

NOTHING = -1, -1


class OnDisk(NamedTuple):
    """The directories of partitions: `names` in log dirs that are online, `away` in log dirs that went offline after
    they were read. `hides_any`: a log dir is offline that this process has never read."""

    names: set[str]
    away: set[str]
    hides_any: bool

    def may_be_away(self, name: str) -> bool:
        """Whether a log may be in a log dir that is offline."""
        return name not in self.names and (self.hides_any or name in self.away)


def on_disk(store: SegmentStore) -> OnDisk:
    """Read the present state from the store."""
    log_dirs = store.statistics()
    offline = [one for one in log_dirs if one.offline_reason is not None]
    names = {name for one in log_dirs if one.offline_reason is None for name in one.names}
    away = {name for one in offline for name in one.names}
    return OnDisk(names, away, any(not one.directory_id for one in offline))


def held(
    store: SegmentStore, hosted: Sequence[HostedPartition], configs: Mapping[bytes, LogConfig], there: OnDisk
) -> list[Held]:
    """The state of each hosted partition. `configs`: by topic id."""
    return [_held_of(store, one, configs[one.topic_id], there) for one in hosted]


def _held_of(store: SegmentStore, hosted: HostedPartition, config: LogConfig, there: OnDisk) -> Held:
    if name_of(hosted) not in there.names:
        return Held(hosted, _holding_of_none(store, hosted, there), NOTHING)
    try:
        opening = store.replica(identity(hosted)).opening
    except EngineError:
        return Held(hosted, Holding.CLOSED, NOTHING)
    assert opening is not None, "it was opened by the store"
    return Held(hosted, _judged(config, opening), (opening.last_epoch, opening.end_offset))


def _holding_of_none(store: SegmentStore, hosted: HostedPartition, there: OnDisk) -> Holding:
    """The state of a partition without a readable directory."""
    if there.may_be_away(name_of(hosted)):
        return Holding.AWAY
    return Holding.LOST if store.had(identity(hosted)) else Holding.MISSING


def _judged(config: LogConfig, opening: Opening) -> Holding:
    if opening.is_damaged:
        return Holding.DAMAGED
    if config.flush_policy is FlushPolicy.ASYNC:
        return Holding.WHOLE if opening.is_clean else Holding.UNSURE
    return Holding.SHORT if opening.is_short else Holding.WHOLE
