"""All clients of groups in a run: it starts them, brings them to rest, and compares them with the broker in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.tests.simulation.group_client import GroupClient
from kafkawire.tests.simulation.group_committer import Committer, GroupAdmin
from kafkawire.tests.simulation.group_history import AWAY, GroupHistory, LastWords, LiveMember, decode_targets
from kafkawire.tests.simulation.group_member import Member
from kafkawire.tests.simulation.group_plan import GroupPlan, GroupsPlan
from kafkawire.tests.simulation.network import LOST, Connection
from kafkawire.tests.simulation.shared import Shared

SETTLE_WITHIN_S = 15.0  # beyond the time-outs
DEAD_IN_THE_END = 0.3


@dataclass
class Crowd:
    """The clients of all groups, which run until `stop`."""

    plan: GroupsPlan
    shared: Shared
    groups: GroupHistory
    _members: dict[str, list[Member]] = field(default_factory=dict)
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __post_init__(self) -> None:
        self._rng = self.shared.rng("crowd")
        for group in self.plan.groups:
            self.groups.session_timeouts_ms[group.name] = group.session_timeout_ms
            self.groups.rebalance_timeouts_ms[group.name] = group.rebalance_timeout_ms
            self._members[group.name] = [
                Member(one.name, group, self.shared, self.groups, instance_id=one.instance_id) for one in group.members
            ]

    async def run(self) -> None:
        """Run the clients, after each group with members has its anchor."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for group in self.plan.groups:
                    nursery.start_soon(self._run_group, group, nursery)

    async def _run_group(self, group: GroupPlan, nursery: trio.Nursery) -> None:
        if group.members:
            await Committer(f"{group.name}-anchor", group, self.shared, self.groups).anchor()
        for member in self._members[group.name]:
            nursery.start_soon(member.run)
        for number in range(group.committers):
            nursery.start_soon(Committer(f"{group.name}-{number}", group, self.shared, self.groups).run)
        if group.is_volatile:
            nursery.start_soon(GroupAdmin(f"{group.name}-admin", group, self.shared, self.groups).run)

    def thin_out(self) -> None:
        """Let some members die for good, without a LeaveGroup. Of two members with the same instance at most one
        stays."""
        for members in self._members.values():
            instances = set()
            for member in members:
                is_twin = member.instance_id in instances
                instances.add(member.instance_id or member.name)
                if is_twin or self._rng.random() < DEAD_IN_THE_END:
                    member.is_dead = True

    async def wait_until_stable(self) -> None:
        """Wait until all groups have the right members, and stay so; trouble if they do not.

        A static member that died may still get partitions when a generation begins. It is removed when its session or
        the time to sync is over, which is another rebalance.
        """
        with_members = [group for group in self.plan.groups if group.members]
        if not with_members:
            return
        session_s = max(group.session_timeout_ms for group in with_members) / 1000
        rebalance_s = max(group.rebalance_timeout_ms for group in with_members) / 1000
        await trio.sleep(session_s + 0.5)
        rest_s = max(session_s, rebalance_s) + session_s / 2  # the others need a heartbeat to notice
        with trio.move_on_after(2 * rebalance_s + SETTLE_WITHIN_S + rest_s) as waited:
            await self._rest(with_members, rest_s)
        if waited.cancelled_caught:
            unsettled = [group.name for group in with_members if not self._is_settled(group)]
            self.shared.history.troubles.append(f"groups that do not come to rest: {unsettled}")

    async def _rest(self, groups: list[GroupPlan], rest_s: float) -> None:
        """Return when all groups have been settled for `rest_s` seconds, each in one generation."""
        known: list[set[int]] = []
        since_s = trio.current_time()
        while not known or trio.current_time() < since_s + rest_s:
            await trio.sleep(0.05)
            is_settled = all(self._is_settled(group) for group in groups)
            found = [{one.generation for one in self._living(group)} for group in groups] if is_settled else []
            if found != known:
                known, since_s = found, trio.current_time()

    def _is_settled(self, group: GroupPlan) -> bool:
        living = self._living(group)
        if not all(one.is_synced for one in living) or len({one.generation for one in living}) > 1:
            return False
        return not living or {target for one in living for target in one.assigned} == set(group.targets)

    def _living(self, group: GroupPlan) -> list[Member]:
        return [member for member in self._members[group.name] if not member.is_dead]

    async def last_words(self) -> None:
        """Note the final state of all groups, as clients know it and as the broker describes it."""
        if not self.plan.groups:
            return
        words = self.groups.last_words = LastWords()
        for group in self.plan.groups:
            reader = Committer(f"{group.name}-last", group, self.shared, self.groups)
            await reader.last_reading()
            await self._insist(reader, words, group)
            words.living[group.name] = [LiveMember(one.member_id, one.assigned) for one in self._living(group)]

    async def read_again(self) -> None:
        """Read all committed offsets of the groups again."""
        for group in self.plan.groups:
            await Committer(f"{group.name}-last", group, self.shared, self.groups).last_reading()

    async def _insist(self, client: GroupClient, words: LastWords, group: GroupPlan) -> None:
        while True:
            connection = await self.shared.connected(client.name, client.rng)
            try:
                if await self._describe(connection, words, group):
                    return
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    async def _describe(self, connection: Connection, words: LastWords, group: GroupPlan) -> bool:
        description = (await self.shared.ask(connection, DescribeGroupsRequest(groups=[group.name]), 5)).groups[0]
        listed = await self.shared.ask(connection, ListGroupsRequest(), 4)
        if {description.error_code, listed.error_code} & AWAY:
            return False
        members = {one.member_id: decode_targets(one.member_assignment) for one in description.members}
        words.described[group.name] = description.group_state, members
        words.listed = {one.group_id: one.group_state for one in listed.groups}
        self.shared.history.note("described", group.name, description.group_state, sorted(members.items()))
        return True

    def stop(self) -> None:
        self._scope.cancel()
