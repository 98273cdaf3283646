"""Commits a multi exactly once although its reply may be lost: look first, then try again (RULES M2, R3).

A store promises that a multi whose reply was lost is either in what a `sync` shows, or will never be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from coordinator.metadata.store import ConnectionLost, Create, Delete, MetadataStore, NoNode, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)  # before each look; about what a request may wait for the store


async def commit(store: MetadataStore, operations: Sequence[Operation]) -> None:
    """Does the multi once. It must hold a Create whose value is the writer's alone, or only delete for good.

    Raises: what the multi meets; ConnectionLost when the outcome could not be learnt in time.
    """
    for _ in PAUSES_S:
        try:
            await store.multi(operations)
        except ConnectionLost:
            if await _happened(store, operations):
                return
        else:
            return
    raise ConnectionLost


async def _happened(store: MetadataStore, operations: Sequence[Operation]) -> bool:
    witness = _witness(operations)
    for pause_s in PAUSES_S:
        await trio.sleep(pause_s)
        try:
            await store.sync()
            node = await store.get(witness.path)
        except NoNode:
            return isinstance(witness, Delete)
        except ConnectionLost:
            continue
        return isinstance(witness, Create) and node.value == witness.value
    raise ConnectionLost


def _witness(operations: Sequence[Operation]) -> Create | Delete:
    """The operation whose trace tells whether the multi was done."""
    creates = [operation for operation in operations if isinstance(operation, Create)]
    deletes = [operation for operation in operations if isinstance(operation, Delete)]
    return (creates or deletes)[-1]
