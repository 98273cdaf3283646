"""Commit of a multi exactly once although its reply may be lost (RULES M2, K5).

A `sync` settles nothing: a leader that has been deposed and does not know it may answer it. The reply to a multi
settles its outcome, whether it is done or fails: the leader that all others obey gave it its place among all writes,
and later reads of this session are at least as new. So after a lost reply the same multi is sent again until an answer
comes. If that is a failure, the *witness* decides, a node that only this writer makes: the multi may have been done the
first time, and other writes since may have changed the fence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from coordinator.metadata_store.store import (
    ConnectionLost,
    Create,
    Delete,
    MetadataStore,
    NoNode,
    Operation,
    SessionLost,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)  # seconds before each attempt; in all about a request's wait for the store


async def commit(store: MetadataStore, operations: Sequence[Operation]) -> None:
    """Commit the multi once. It must hold a Create whose value is the writer's alone, or only final deletions.

    Raises: the error of the multi; ConnectionLost or SessionLost if the outcome could not be learnt in time.
    """
    is_unknown = False
    for pause_s in PAUSES_S:
        await trio.sleep(pause_s)
        try:
            await _do(store, operations, may_be_done=is_unknown)
        except ConnectionLost:
            is_unknown = True
        else:
            return
    raise ConnectionLost


async def _do(store: MetadataStore, operations: Sequence[Operation], *, may_be_done: bool) -> None:
    try:
        await store.multi(operations)
    except (ConnectionLost, SessionLost):
        raise
    except StoreError:
        if not (may_be_done and await _was_done(store, _witness(operations))):
            raise


async def _was_done(store: MetadataStore, witness: Create | Delete) -> bool:
    try:
        node = await store.get(witness.path)
    except NoNode:
        return isinstance(witness, Delete)
    return isinstance(witness, Create) and node.value == witness.value


def _witness(operations: Sequence[Operation]) -> Create | Delete:
    """The operation whose trace tells whether the multi was done."""
    creates = [operation for operation in operations if isinstance(operation, Create)]
    deletes = [operation for operation in operations if isinstance(operation, Delete)]
    return (creates or deletes)[-1]
