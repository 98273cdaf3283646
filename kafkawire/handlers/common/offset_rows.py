"""Rows of committed offsets in OffsetFetch responses, packed directly: a consumer may ask for thousands.

A row is three numbers, a mostly empty text, and mostly no error: nearly all rows end with the same four bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkawire.messages.offset_fetch import OffsetFetchResponse
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.wire.plan_encode import EncodedElements
from kafkawire.wire.primitives import EncodeError, uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.errors import GroupError
    from coordinator.groups.api import CommittedOffset

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
FIRST_VERSION_WITH_EPOCH: Final = 5
_with_epoch: Final = Struct(">iqi").pack
_legacy: Final = Struct(">iq").pack


def encode_rows(found: Iterable[tuple[int, CommittedOffset | GroupError | None]], version: int) -> EncodedElements:
    """Encode rows by partition. A row without a committed offset, or with an error, has -1. Raises EncodeError."""
    pack = _with_epoch if version >= FIRST_VERSION_WITH_EPOCH else _without_epoch
    end = _end_flexible if version >= OffsetFetchResponse.FLEXIBLE_FROM else _end_legacy
    no_text = end("")
    try:
        return EncodedElements(
            [
                pack(partition, NO_OFFSET, NO_EPOCH) + no_text
                if one is None
                else pack(partition, one.offset, one.leader_epoch) + (end(one.metadata) if one.metadata else no_text)
                if isinstance(one, tuple)
                else pack(partition, NO_OFFSET, NO_EPOCH) + end("", error_code_of(one))
                for partition, one in found
            ]
        )
    except (UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"a committed offset's text: {error}") from None


def _without_epoch(partition: int, offset: int, _epoch: int) -> bytes:
    return _legacy(partition, offset)


def _end_legacy(text: str, code: int = ErrorCode.NONE) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big", signed=True) + encoded + code.to_bytes(2, "big")


def _end_flexible(text: str, code: int = ErrorCode.NONE) -> bytes:
    """Text, code and empty tagged fields of a row."""
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded + code.to_bytes(2, "big") + b"\0"
