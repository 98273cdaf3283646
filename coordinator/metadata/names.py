"""Rules for names of topics. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from coordinator.errors import InvalidTopicName

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_SIZE_MAX = 249  # 255, the longest file name, less the additions in names of partitions and deleted directories

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_UNIFY = str.maketrans(".", "_")


def validate_name(name: str) -> None:
    """Raise InvalidTopicName for an illegal name, as Kafka's Topic.validate does."""
    if not name:
        raise InvalidTopicName("Topic name is invalid: the empty string is not allowed")
    if name in {".", ".."}:
        raise InvalidTopicName("Topic name is invalid: '.' or '..' is not allowed")
    if len(name) > NAME_SIZE_MAX:
        raise InvalidTopicName(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {NAME_SIZE_MAX}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicName(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )


def refuse_collision(name: str, existing: Iterable[str]) -> None:
    """Refuse a name that differs from another only in '.' and '_': metric names turn '.' into '_' (Kafka's
    Topic.unifyCollisionChars)."""
    if "." in name or "_" in name:
        unified = name.translate(_UNIFY)
        for other in existing:
            if other.translate(_UNIFY) == unified:
                raise InvalidTopicName(f"Topic '{name}' collides with existing topic: {other}")
