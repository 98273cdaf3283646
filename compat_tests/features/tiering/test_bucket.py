"""Tests of the check of a bucket: each kind of damage is found, in a bucket that a broker in memory has filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.features.tiering.bucket import examine
from testkit.tiered_logs import Tiered, copy_all
from tiering.object_store import StoreUnavailable
from tiering.stores.memory import HEALTHY, Fault, Operation

if TYPE_CHECKING:
    from collections.abc import Callable


async def filled() -> Tiered:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
    return tiered


async def test_an_intact_bucket_has_no_problems() -> None:
    tiered = await filled()
    found = await examine(tiered.store, "")
    assert found.problems() == []
    assert (found.partitions, found.segments, found.on_their_way) == (1, len(tiered.segments()), 0)
    assert found.segments > 1
    assert found.bytes > 0


async def test_the_segment_of_an_unfinished_upload_is_no_orphan() -> None:
    tiered = Tiered()
    puts = []

    def last_is_lost(operation: Operation, key: str) -> Fault:
        puts.extend([key] if operation is Operation.PUT else [])
        return Fault(is_lost=True) if len(puts) == 3 else HEALTHY

    async with tiered.life() as tier:
        tiered.store.fault = last_is_lost
        with pytest.raises(StoreUnavailable):
            await tier.copy_next()
    tiered.store.fault = lambda _operation, _key: HEALTHY
    found = await examine(tiered.store, "")
    assert (found.problems(), found.segments, found.on_their_way) == ([], 0, 1)


def remove(tiered: Tiered) -> None:
    del tiered.store.objects[tiered.segments()[0]]


def flip(tiered: Tiered) -> None:
    key = tiered.segments()[0]
    data, when = tiered.store.objects[key]
    tiered.store.objects[key] = bytes([data[0] ^ 1]) + data[1:], when


def add(tiered: Tiered) -> None:
    tiered.store.objects[tiered.segments()[0] + "0"] = b"", 0


def hole(tiered: Tiered) -> None:
    manifests = sorted(key for key in tiered.store.objects if key.startswith(tiered.place.manifests))
    del tiered.store.objects[manifests[1]]


def cut(tiered: Tiered) -> None:
    newest = max(key for key in tiered.store.objects if key.startswith(tiered.place.manifests))
    data, when = tiered.store.objects[newest]
    tiered.store.objects[newest] = data[:-3], when


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (remove, "dangling entry"),
        (flip, "other bytes"),
        (add, "orphan"),
        (hole, "version missing"),
        (cut, "manifest"),
    ],
)
async def test_damage_is_told(damage: Callable[[Tiered], None], kind: str) -> None:
    tiered = await filled()
    damage(tiered)
    [problem] = (await examine(tiered.store, "")).problems()
    assert problem.startswith(f"{kind} x 1: ")


async def test_pages_that_no_manifest_names_are_counted() -> None:
    tiered = await filled()
    tiered.store.objects[f"{tiered.place.prefix}page/0-1-0-a"] = b"", 0
    found = await examine(tiered.store, "")
    assert (found.problems(), found.pages_left) == ([], 1)
