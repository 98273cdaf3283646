"""The state of this broker's replicas after a start, from the names in its log dirs and the results of opening the
logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.ports import FoundLog, LogCondition
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


def found_logs(
    store: SegmentStore, hosted: Sequence[HostedPartition], configs: Mapping[bytes, LogConfig], there: OnDisk
) -> list[FoundLog]:
    """The state of each hosted partition. `configs`: by topic id."""
    return [_found_log(store, one, configs[one.topic_id], there) for one in hosted]


def _found_log(store: SegmentStore, hosted: HostedPartition, config: LogConfig, there: OnDisk) -> FoundLog:
    if name_of(hosted) not in there.names:
        return FoundLog(hosted, _holding_of_missing(store, hosted, there), NOTHING)
    try:
        opening = store.replica(identity(hosted)).opening
    except EngineError:
        return FoundLog(hosted, LogCondition.CLOSED, NOTHING)
    assert opening is not None, "it was opened by the store"
    return FoundLog(hosted, _assess(config, opening), (opening.last_epoch, opening.end_offset))


def _holding_of_missing(store: SegmentStore, hosted: HostedPartition, there: OnDisk) -> LogCondition:
    """The state of a partition without a readable directory."""
    if there.may_be_away(name_of(hosted)):
        return LogCondition.AWAY
    return LogCondition.LOST if store.had(identity(hosted)) else LogCondition.MISSING


def _assess(config: LogConfig, opening: Opening) -> LogCondition:
    if opening.is_damaged:
        return LogCondition.DAMAGED
    if config.flush_policy is FlushPolicy.ASYNC:
        return LogCondition.WHOLE if opening.is_clean else LogCondition.UNSURE
    return LogCondition.SHORT if opening.is_short else LogCondition.WHOLE
