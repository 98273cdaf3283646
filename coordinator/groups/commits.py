"""The outcome of a request to commit offsets: offsets and the records that keep them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.errors import OffsetMetadataTooLarge
from coordinator.groups.api import NO_EXPIRY_MS, CommittedOffset
from coordinator.groups.records import encode_offset, offset_key_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.errors import GroupError
    from coordinator.groups.api import OffsetToCommit
    from coordinator.state.log import StateRecord


class Commits(NamedTuple):
    """`outcomes` are those of all offsets asked for; `taken` and `records` have, side by side, only the accepted
    ones."""

    outcomes: list[GroupError | None]
    taken: list[tuple[str, int, CommittedOffset]]
    records: list[StateRecord]


def commits_of(
    group_id: str,
    offsets: Sequence[OffsetToCommit],
    metadata_max_length: int,
    wall_ms: int,
    expires_ms: int = NO_EXPIRY_MS,
) -> Commits:
    """Accept the offsets of a request; an offset with more metadata than allowed is refused alone."""
    outcomes: list[GroupError | None] = []
    taken: list[tuple[str, int, CommittedOffset]] = []
    records: list[StateRecord] = []
    prefixes: dict[str, bytes] = {}
    for topic, partition, offset, leader_epoch, metadata in offsets:
        if metadata and _is_too_long(metadata, metadata_max_length):
            outcomes.append(OffsetMetadataTooLarge(f"{len(metadata)} characters"))
            continue
        committed = CommittedOffset(offset, leader_epoch, metadata, wall_ms, expires_ms)
        prefix = prefixes.get(topic) or prefixes.setdefault(topic, offset_key_prefix(group_id, topic))
        taken.append((topic, partition, committed))
        records.append(encode_offset(prefix, partition, committed))
        outcomes.append(None)
    return Commits(outcomes, taken, records)


def _is_too_long(metadata: str, max_length: int) -> bool:
    """Whether the metadata are too long, counted in units of UTF-16 as Java counts: a character has one or two."""
    return 2 * len(metadata) > max_length and len(metadata.encode("utf-16-le")) > 2 * max_length
