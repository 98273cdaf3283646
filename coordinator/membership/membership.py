"""The membership of this broker: how it registers, its state for the others, and the fence of its writes.

A registration is one multi: a node that exists as long as the session lasts, and the member's node. Every registration
has an incarnation of its own, so that nothing that was given to an earlier one is taken for ours.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from coordinator.api import BrokerState
from coordinator.errors import CannotStart, MetadataUnavailable
from coordinator.metadata.change_log import Overtaken
from coordinator.metadata.ids import new_id
from coordinator.metadata.nodes import encode_member
from coordinator.metadata.unlogged_nodes import decode_controller, encode_alive
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import BadVersion, Check, Create, Delete, NodeExists, NoNode, Operation, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from coordinator.api import BrokerInfo, ClusterImage
    from coordinator.metadata.change_log import ChangeLog
    from coordinator.metadata_store.store import MetadataStore


DELETING_S = 1.0  # longer than a deletion of all nodes takes for those of the brokers


class Membership:
    """The broker as it is registered. `broker`: its id, endpoints and rack, which all its registrations share."""

    def __init__(
        self,
        store: MetadataStore,
        log: ChangeLog,
        broker: BrokerInfo,
        random: Random,
        before_registration: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_registration` is called before a registration, when `me` has its incarnation."""
        self._store = store
        self._log = log
        self._random = random
        self._before_registration = before_registration
        self._process_epoch: int | None = None
        self.me = broker

    @property
    def is_fenced(self) -> bool:
        """Whether the cluster has fenced this process, so that it has to register anew."""
        known = self._log.image.members.get(self.me.broker_id)
        return known is None or known.incarnation != self.me.incarnation or known.state is BrokerState.FENCED

    @property
    def fence(self) -> Check:
        """The check that this broker is still a member, for its writes on the present image. Raises
        MetadataUnavailable."""
        if self.is_fenced:
            raise MetadataUnavailable("This broker is not registered.")
        known = self._log.image.members[self.me.broker_id]
        return Check(paths.member(known.broker_id), known.version)

    async def register(self, log_dirs: Sequence[str], timeout_s: float) -> None:
        """Register anew. If another process is registered whose log dirs we have locked, it is dead, and its session
        need not end.

        Raises: CannotStart when another broker goes on using the id.
        """
        broker_id = self.me.broker_id
        with trio.move_on_after(timeout_s):
            while True:
                gone = trio.Event()
                is_alive = await self._store.exists(paths.broker(broker_id), gone)
                image = self._log.image
                known = image.members.get(broker_id) or image.former.get(broker_id)
                if is_alive and not (known and {*known.log_dirs} & {*log_dirs}):
                    await gone.wait()
                    await self._log.catch_up()
                    continue
                self.me = self._next_registration(known, log_dirs)
                self._before_registration()
                deletions = [Delete(paths.broker(broker_id)), *await self._role_deletion()] if is_alive else []
                try:
                    await self._log.commit(image, [], [*deletions, *self._registration(known)])
                except Overtaken:
                    continue
                self._process_epoch = self.me.process_epoch
                return
        raise CannotStart(f"the broker id {broker_id} is in use by another running broker")

    async def made_alive(self, names: Sequence[str]) -> bool:
        """Make this broker's node below /brokers again if it is not among these; return whether it was not. If it is
        gone while the session lasts, it was deleted from outside, perhaps with those of other brokers, and soon with
        their parent: the new node must not be in the way of that. Raises NoNode if the parent is gone."""
        if str(self.me.broker_id) in names or self.is_fenced:
            return False
        await trio.sleep(DELETING_S)
        alive = Create(paths.broker(self.me.broker_id), encode_alive(self.me.incarnation), ephemeral=True)
        with suppress(NodeExists, BadVersion):
            await self._store.multi([self.fence, alive])
        return True

    def _next_registration(self, known: BrokerInfo | None, log_dirs: Sequence[str]) -> BrokerInfo:
        """The next registration. Log dirs that an earlier one had and this one lacks are remembered until it serves: if
        the process dies before, it has not told which data it lacks."""
        had = {*known.log_dirs, *known.lost_log_dirs} if known else set()
        epoch = known.epoch + 1 if known else self._log.image.history.broker_epoch
        return replace(
            self.me,
            incarnation=new_id(self._random),
            epoch=epoch,
            process_epoch=epoch if self._process_epoch is None else self._process_epoch,
            state=BrokerState.RECOVERING,
            log_dirs=tuple(log_dirs),
            lost_log_dirs=tuple(sorted(had - {*log_dirs})),
            extra=known.extra if known else b"",
        )

    def _registration(self, known: BrokerInfo | None) -> list[Operation]:
        path, value = paths.member(self.me.broker_id), encode_member(self.me)
        alive = Create(paths.broker(self.me.broker_id), encode_alive(self.me.incarnation), ephemeral=True)
        return [alive, Create(path, value) if known is None else Put(path, value, known.version)]

    async def _role_deletion(self) -> list[Operation]:
        """The controller's role of the registration before goes with it."""
        try:
            node = await self._store.get(paths.CONTROLLER)
        except NoNode:
            return []
        broker_id, _ = decode_controller(paths.CONTROLLER, node.value)
        return [Delete(paths.CONTROLLER, node.version)] if broker_id == self.me.broker_id else []

    async def become(self, state: BrokerState, *, has_away: bool = False) -> None:
        """Tell the cluster this broker's state; it has told before which data it lacks. `has_away`: logs on an absent
        log dir may be whole, so the log dir is remembered. Raises MetadataUnavailable if this process was fenced
        meanwhile."""
        if not has_away:
            self.me = replace(self.me, lost_log_dirs=())
        while not await self.became(state, self._log.image):
            pass

    async def became(self, state: BrokerState, image: ClusterImage) -> bool:
        """Write the state as `become` does, unless there is a newer image than that; return whether it is written."""
        fence = self.fence
        member = replace(image.members[self.me.broker_id], state=state, lost_log_dirs=self.me.lost_log_dirs)
        try:
            await self._log.commit(image, [], [Put(fence.path, encode_member(member), fence.version)])
        except Overtaken:
            return False
        self.me = replace(self.me, state=state)
        return True
