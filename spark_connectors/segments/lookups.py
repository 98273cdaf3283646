"""Many things that are asked of somebody else, some of them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

AT_A_TIME: Final = 8

T = TypeVar("T")
R = TypeVar("R")


def each(look_up: Callable[[T], R], wanted: Sequence[T]) -> list[R]:
    """What is found of each, in their order. Raises what the first one does that fails."""
    if not wanted:
        return []
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return list(threads.map(look_up, wanted))
