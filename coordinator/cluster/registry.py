"""Who is in the cluster: its id, this broker's registration, and the controller's role."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from coordinator.cluster.nodes import (
    decode_cluster,
    decode_controller_epoch,
    encode_broker,
    encode_cluster,
    encode_controller,
    encode_controller_epoch,
)
from coordinator.errors import CannotStart
from coordinator.metadata import paths
from coordinator.metadata.commits import commit
from coordinator.metadata.store import (
    BadVersion,
    Check,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Put,
)

if TYPE_CHECKING:
    from random import Random

    from coordinator.api import BrokerInfo


def new_id(random: Random) -> bytes:
    """A random UUID that needs no quoting on a command line: Kafka's Uuid.randomUuid avoids a leading '-' too.

    Version 4 leaves out zero and the few ids that Kafka reserves.
    """
    while True:
        made = UUID(int=random.getrandbits(128), version=4).bytes
        if not id_text(made).startswith("-"):
            return made


def id_text(uuid: bytes) -> str:
    """The 22 characters in which Kafka writes a UUID."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


async def cluster_id(store: MetadataStore, random: Random) -> str:
    """The cluster's id. The first broker of all makes it, together with the layout. Raises CannotStart."""
    await store.sync()
    try:
        found = await store.get(paths.CLUSTER)
    except NoNode:
        layout = [Create(path, b"") for path in (paths.BROKERS, paths.TOPICS, paths.PARTITIONS, paths.CHANGES)]
        epoch = Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(0))
        made = Create(paths.CLUSTER, encode_cluster(id_text(new_id(random))))
        try:
            await commit(store, [*layout, epoch, made])
        except NodeExists:
            await store.sync()
        found = await store.get(paths.CLUSTER)
    return decode_cluster(paths.CLUSTER, found.value)


async def register(store: MetadataStore, broker: BrokerInfo, timeout_s: float) -> Check:
    """Registers the broker and returns the fence of its registration.

    An earlier process of this broker may have left a session that has not run out: that is waited for.
    Raises: CannotStart when another broker goes on using the id.
    """
    path = paths.broker(broker.broker_id)
    with trio.move_on_after(timeout_s):
        while True:
            gone = trio.Event()
            try:
                await commit(store, [Create(path, encode_broker(broker), ephemeral=True)])
            except NodeExists:
                if await store.exists(path, gone):
                    await gone.wait()
            else:
                return Check(path, 0)
    raise CannotStart(f"the broker id {broker.broker_id} is in use by another running broker")


async def acquire_controller(store: MetadataStore, broker_id: int) -> Check | None:
    """Takes the controller's role if it is free, and returns the fence for everything this controller writes."""
    node = await store.get(paths.CONTROLLER_EPOCH)
    epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, node.value) + 1
    raised = Put(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), node.version)
    held = Create(paths.CONTROLLER, encode_controller(broker_id, epoch), ephemeral=True)
    try:
        await commit(store, [raised, held])
    except (BadVersion, NodeExists):
        return None
    return Check(paths.CONTROLLER_EPOCH, node.version + 1)
