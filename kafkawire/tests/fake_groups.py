"""A fake group service: it notes the calls, and answers at once or when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import trio

from coordinator.api import Future
from coordinator.errors import CoordinatorError, GroupError
from coordinator.futures import SettableFuture
from coordinator.groups.api import (
    Claim,
    GroupListing,
    OffsetToCommit,
)
from coordinator.groups.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchAllOffsets,
    FetchOffsets,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetFetch,
    SyncGroup,
)
from coordinator.state.log import FIRST_PROTOCOL

T = TypeVar("T")
CALLS: dict[type[GroupCommand[Any]], str] = {
    JoinGroup: "join",
    SyncGroup: "sync",
    Heartbeat: "heartbeat",
    LeaveGroup: "leave",
    CommitOffsets: "commit",
    FetchAllOffsets: "fetch_all_offsets",
    FetchOffsets: "fetch_offsets",
    DeleteOffsets: "delete_offsets",
    DescribeGroup: "describe",
    DeleteGroup: "delete_group",
}


CALL_NAMES = (*CALLS.values(), "commit_in_transaction", "list_groups")


@dataclass
class FakeGroups:
    """`calls`: names with arguments. A call with an entry in `answers` is settled at once, the others wait in `asked`
    for the test.

    `answers` has the name of a call as key, or the name together with the group's.
    """

    answers: dict[str | tuple[str, str], Any] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    asked: list[SettableFuture[Any]] = field(default_factory=list)
    coordinator: int | GroupError = 1

    def _ask(self, call: str, *arguments: Any) -> Future[Any]:
        self.calls.append((call, *arguments))
        future: SettableFuture[Any] = SettableFuture()
        self.asked.append(future)
        of_group = (call, *arguments[:1])
        for key in (of_group, call):
            if key in self.answers:
                future.settle(self.answers[key])
                break
        return future

    async def coordinator_of(self, group_id: str) -> int:
        self.calls.append(("coordinator_of", group_id))
        await trio.lowlevel.checkpoint()
        if isinstance(self.coordinator, GroupError):
            raise self.coordinator
        return self.coordinator

    def ask(self, command: GroupCommand[T]) -> Future[T]:
        arguments = [getattr(command, one.name) for one in fields(command) if not one.kw_only]
        if isinstance(command, OffsetFetch):
            arguments += [True] * command.require_stable
        return self._ask(CALLS[type(command)], *arguments)

    def commit_in_transaction(
        self,
        group_id: str,
        claim: Claim,
        producer_id: int,
        epoch: int,
        offsets: Sequence[OffsetToCommit],
        *,
        allowed: Future[None] | None = None,
        protocol: int = FIRST_PROTOCOL,
    ) -> Future[list[GroupError | None]]:
        if allowed is None:
            return self._ask("commit_in_transaction", group_id, claim, producer_id, epoch, offsets)
        try:
            allowed.result()  # settled, in a test of handlers
        except CoordinatorError as error:
            refused: SettableFuture[Any] = SettableFuture()
            refused.settle(error)
            return refused
        return self._ask("commit_in_transaction", group_id, claim, producer_id, epoch, offsets, protocol)

    def partition_of(self, group_id: str) -> int:
        return 7

    def list_groups(self) -> Future[list[GroupListing]]:
        return self._ask("list_groups")
