"""Clients of groups that are not members: simple consumers that only commit, and the administrator of groups."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kafkawire.messages.delete_groups import DeleteGroupsRequest
from kafkawire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.group_client import GroupClient
from kafkawire.tests.simulation.group_history import AWAY, Removal
from kafkawire.tests.simulation.network import LOST, Connection


@dataclass
class Committer(GroupClient):
    """A client that commits and reads, until the run is over."""

    async def run(self) -> None:
        while not self.shared.is_over:
            connection = await self.shared.connected(self.name, self.rng)
            try:
                await self.find_coordinator(connection)
                while not self.shared.is_over:
                    await trio.sleep(self.rng.expovariate(1 / 0.25))
                    await self._use(connection)
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    async def _use(self, connection: Connection) -> None:
        if self.rng.random() < 0.5:
            await self.read_offsets(connection)
            return
        targets = tuple(sorted(self.rng.sample(self.plan.targets, self.rng.randint(1, len(self.plan.targets)))))
        retention_ms = self.plan.retention_ms if self.rng.random() < 0.5 else None
        code = await self.commit(connection, targets, retention_ms=retention_ms)
        self.expect(code, "OffsetCommit", ErrorCode.NONE, *AWAY)

    async def anchor(self) -> None:
        """Commit until it succeeds: from then on the group exists."""
        while True:
            connection = await self.shared.connected(self.name, self.rng)
            try:
                await self.find_coordinator(connection)
                if not await self.commit(connection, self.plan.targets):
                    return
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    async def last_reading(self) -> None:
        """Read the offsets, and retry until there is a reply."""
        while True:
            connection = await self.shared.connected(self.name, self.rng)
            try:
                if await self.read_offsets(connection, is_stable=True) is not None:
                    return
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)


@dataclass
class GroupAdmin(GroupClient):
    """The administrator: it deletes a group, or offsets of it, now and then."""

    async def run(self) -> None:
        while not self.shared.is_over:
            await trio.sleep(self.rng.expovariate(1 / 2.0))
            connection = await self.shared.connected(self.name, self.rng)
            try:
                await (self._delete_group if self.rng.random() < 0.3 else self._delete_offsets)(connection)
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    async def _delete_group(self, connection: Connection) -> None:
        removal = self._begin(Removal(self.plan.name, None, self.shared.history.tick()))
        answer = await self.shared.ask(connection, DeleteGroupsRequest(groups_names=[self.plan.name]), 1)
        self._end(removal, answer.results[0].error_code)

    async def _delete_offsets(self, connection: Connection) -> None:
        target = self.rng.choice(self.plan.targets)
        removal = self._begin(Removal(self.plan.name, (target,), self.shared.history.tick()))
        partitions = [OffsetDeleteRequestPartition(partition_index=target.partition)]
        topics = [OffsetDeleteRequestTopic(name=target.topic, partitions=partitions)]
        answer = await self.shared.ask(connection, OffsetDeleteRequest(group_id=self.plan.name, topics=topics), 0)
        self._end(removal, answer.error_code or answer.topics[0].partitions[0].error_code)

    def _begin(self, removal: Removal) -> Removal:
        self.groups.removals.append(removal)
        return removal

    def _end(self, removal: Removal, code: int) -> None:
        self.expect(code, "a deletion", ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, *AWAY)
        if code not in AWAY:
            removal.completed = self.shared.history.tick()
            removal.is_done = code == ErrorCode.NONE
        self.shared.history.note(self.name, removal.targets, code)
