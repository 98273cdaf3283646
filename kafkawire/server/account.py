"""Account of one connection: its memory in the budget over all connections, and its right to receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkawire.server.byte_budget import ByteBudget

if TYPE_CHECKING:
    from kafkawire.server.hub import Hub, HubSession
    from kafkawire.wire.connection import ConnectionMachine, HeldFrame
    from kafkawire.wire.connection_info import ConnectionInfo

PEER_MAX_BYTES: Final = 64 * 1024 * 1024  # of requests in flight on one peer connection


class Account:
    """Memory of one connection, and its right to receive.

    The account reports only changes to the budget. A peer connection gets a budget of its own when its handshake is
    done: replication depends on no client. A client's connection is *paused* while the budget does not admit it. It is
    *muted* while the budget is crowded and a Produce of its own is unanswered.
    """

    __slots__ = (
        "_budget",
        "_has_own_budget",
        "_held_size_bytes",
        "_hub",
        "_info",
        "_large_size_bytes",
        "_machine",
        "_unanswered_size_bytes",
        "is_muted",
        "is_paused",
    )

    def __init__(self, hub: Hub, machine: ConnectionMachine, info: ConnectionInfo) -> None:
        self._hub = hub
        self._budget = hub.budget
        self._machine = machine
        self._info = info
        self._held_size_bytes = 0
        self._large_size_bytes = 0
        self._unanswered_size_bytes = 0
        self._has_own_budget = False
        self.is_muted = False
        self.is_paused = False

    @property
    def is_held_back(self) -> bool:
        """Whether the connection is paused or muted."""
        return self.is_paused or self.is_muted

    def recount(self) -> None:
        """Count the memory that is held now, and the share of incoming large frames."""
        machine = self._machine
        self._count(machine.held_size_bytes, machine.large_size_bytes, machine.unanswered_size_bytes)

    def release(self, held: HeldFrame) -> None:
        """Stop counting the frame of a request as memory."""
        self._machine.released(held)
        self.recount()

    def may_receive(self, session: HubSession) -> bool:
        """Whether more may be received, into the buffer of a large frame if the next bytes belong to one.

        If not, the hub visits the session again when it may.
        """
        if self.is_held_back:
            return False
        if self._info.is_peer and not self._has_own_budget:
            self._switch_budget(ByteBudget(PEER_MAX_BYTES))
        if (self._machine.wants_large_buffer or self._budget.is_exhausted) and not self.is_admitted():
            self.is_paused = True
            self._hub.pause(session)
        elif self._budget.is_crowded and self._waits_for_acks():
            self.is_muted = True
            self._hub.mute(session)
        else:
            return True
        self._machine.reading_paused(self._hub.now_s)
        return False

    def is_admitted(self) -> bool:
        """Whether the budget admits the next bytes. The memory of a large frame is counted first."""
        self.recount()
        return self._budget.admits(self, is_large=self._machine.wants_large_buffer)

    def resume(self) -> None:
        """Resume reading the connection."""
        self.is_paused = self.is_muted = False
        self._machine.reading_resumed(self._hub.now_s)

    def close(self) -> None:
        """Count nothing any more: the connection has ended."""
        self._count(0, 0, 0)
        self._budget.note_finished(self)

    def _waits_for_acks(self) -> bool:
        """Whether to mute until a Produce is answered.

        A large frame is received to its end, because its deadline runs.
        """
        return self._machine.awaits_acks and not self._machine.large_size_bytes and not self._has_own_budget

    def _switch_budget(self, budget: ByteBudget) -> None:
        self.close()
        self._budget, self._has_own_budget = budget, True
        self.recount()

    def _count(self, held_size_bytes: int, large_size_bytes: int, unanswered_size_bytes: int) -> None:
        budget = self._budget
        if unanswered_size_bytes != self._unanswered_size_bytes:
            budget.unanswered_size_bytes += unanswered_size_bytes - self._unanswered_size_bytes
            self._unanswered_size_bytes = unanswered_size_bytes
        if held_size_bytes != self._held_size_bytes:
            budget.held_size_bytes += held_size_bytes - self._held_size_bytes
            self._held_size_bytes = held_size_bytes
        if large_size_bytes != self._large_size_bytes:
            budget.large_size_bytes += large_size_bytes - self._large_size_bytes
            self._large_size_bytes = large_size_bytes
            if not large_size_bytes:
                budget.note_finished(self)
