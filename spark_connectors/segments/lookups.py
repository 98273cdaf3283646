"""Parallel lookups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

AT_A_TIME: Final = 8

T = TypeVar("T")
R = TypeVar("R")


def each(look_up: Callable[[T], R], wanted: Sequence[T]) -> list[R]:
    """Results in the order of `wanted`. Raises the error of the first failed lookup."""
    if not wanted:
        return []
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return list(threads.map(look_up, wanted))
