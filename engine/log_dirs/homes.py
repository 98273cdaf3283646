"""The log dir of a partition: the one that has its directory, or one chosen for a new partition."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from engine.errors import StorageError, StoreRefused
from engine.log_dirs.layout import Claim, claim, left_overs
from engine.log_dirs.log_dir import LogDir


def home_of(
    log_dirs: Sequence[LogDir], name: str, leader_epoch: int, coming: Mapping[LogDir, Collection[str]]
) -> LogDir:
    """The log dir of a partition. A new one gets the log dir with the fewest partitions, as in Kafka's LogManager.

    Log dirs that are not behind come first (decision 44). `coming`: names of partitions that are about to be opened, by
    log dir.

    Raises StorageError if the partition had a leader before (its epoch is above 0), no online log dir has it, and an
    offline log dir may have it: an empty log would hide that records are gone. An offline log dir that was read, and
    did not have the name, does not count. For a partition in its first epoch, the caller knows whether it was here when
    the process started.
    """
    homes = _online_homes(log_dirs, name)
    if len(homes) > 1:
        raise StorageError(_two_homes_error(name, homes))
    if homes:
        return homes[0]
    online = [log_dir for log_dir in log_dirs if log_dir.disk.offline_reason is None]
    may_be_away = any(log_dir.may_hold(name) for log_dir in log_dirs if log_dir not in online)
    if not online or (leader_epoch > 0 and may_be_away):
        raise StorageError(f"{name} may be on a log dir that is offline")
    prompt = [log_dir for log_dir in online if log_dir.behind_since_s is None]
    return min(prompt or online, key=lambda log_dir: len(log_dir.names) + len(coming[log_dir]))


async def resolve_homes(log_dirs: Sequence[LogDir]) -> None:
    """Decide which log dir has a partition whose directory is in several ones: the others have a rest of a crash or
    full disk.

    While a log dir is offline that was not read, directories without records are ignored everywhere, because that log
    dir may have the partition. Raises StoreRefused if two log dirs have records of a partition.
    """
    for name, count in Counter(chain.from_iterable(one.names for one in log_dirs)).items():
        if count > 1:
            await _resolve(_online_homes(log_dirs, name), name)
    if any(one.disk.offline_reason is not None and not one.was_read for one in log_dirs):
        for log_dir in log_dirs:
            if log_dir.disk.offline_reason is None:
                await _disown_left_overs(log_dir)


async def _disown_left_overs(log_dir: LogDir) -> None:
    """Ignore directories without records that no checkpoint names: maybe no log was ever opened there."""
    disk, known = log_dir.disk, log_dir.commit_log.points
    with suppress(StorageError):
        log_dir.disown(await disk.run(partial(left_overs, disk.filesystem, disk.path, sorted(log_dir.names), known)))


async def _resolve(homes: Sequence[LogDir], name: str) -> None:
    claims = {}
    for log_dir in homes:
        with suppress(StorageError):
            claims[log_dir] = await log_dir.disk.run(partial(claim, log_dir.disk.filesystem, log_dir.disk.path, name))
    best = max(claims.values(), default=Claim.NONE)
    best_homes = [log_dir for log_dir, found in claims.items() if found is best]
    if best is Claim.RECORDS and len(best_homes) > 1:
        raise StoreRefused(_two_homes_error(name, best_homes))
    for log_dir in claims:
        if log_dir is not best_homes[0]:
            log_dir.disown([name])


def _online_homes(log_dirs: Sequence[LogDir], name: str) -> list[LogDir]:
    return [one for one in log_dirs if name in one.names and one.disk.offline_reason is None]


def _two_homes_error(name: str, homes: Sequence[LogDir]) -> str:
    return f"{name} is in two log dirs: {' and '.join(log_dir.disk.path for log_dir in homes)}"
