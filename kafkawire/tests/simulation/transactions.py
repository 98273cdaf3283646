"""All transactional clients of a run: it starts them, brings them to rest, and reads the result in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.admin import creation_of
from kafkawire.tests.simulation.group_history import AWAY
from kafkawire.tests.simulation.late_requests import LateRequests
from kafkawire.tests.simulation.plan import TopicPlan
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.transaction_client import Transactor
from kafkawire.tests.simulation.transaction_history import TransactionHistory
from kafkawire.tests.simulation.transaction_plan import TransactionsPlan, TransactorPlan
from kafkawire.tests.simulation.transaction_reader import OFFSET_FETCH_VERSION, StableReader

SETTLE_WITHIN_S = 90.0
NAME = "transactions"


@dataclass
class Transactions:
    """The transactional clients, which run until the load is over."""

    plan: TransactionsPlan
    shared: Shared
    history: TransactionHistory = field(default_factory=TransactionHistory)

    def __post_init__(self) -> None:
        self._rng = self.shared.rng(NAME)
        self.history.compacted = frozenset(one for one in self.plan.targets if self.plan.is_compacted(one))

    async def run(self) -> None:
        await self.create_topics()
        await self.use_them()

    async def create_topics(self) -> None:
        for topic in self.plan.topics:
            await self._create(topic)

    async def use_them(self) -> None:
        """Run the producers and readers until the load is over."""
        async with trio.open_nursery() as nursery:
            late = self._late(nursery)
            for one in self.plan.transactors:
                nursery.start_soon(self._transactor(one, late).run)
            for number in range(self.plan.readers):
                nursery.start_soon(self._reader(f"stable-reader-{number}").run)

    def _late(self, nursery: trio.Nursery) -> LateRequests:
        return LateRequests(self.shared, nursery)

    def _transactor(self, one: TransactorPlan, late: LateRequests) -> Transactor:
        return Transactor(one.name, self.shared, self.history, one, self.plan, late)

    def _reader(self, name: str) -> StableReader:
        return StableReader(name, self.shared, self.history, self.plan)

    async def _create(self, plan: TopicPlan) -> None:
        answer = await self.shared.insist(NAME, self._rng, creation_of(plan), 7)
        code = answer.topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.shared.history.troubles.append(f"{plan.name} is not created: {ErrorCode(code).name}")

    async def last_words(self) -> None:
        """Read the committed records and offsets in the end, when no transaction is open: time-outs end them."""
        reader = self._reader("stable-reader-last")
        with trio.move_on_after(SETTLE_WITHIN_S) as waited:
            for target in self.plan.targets:
                self.history.final[target] = await reader.read_to_the_end(target)
            for group in sorted({one.group for one in self.plan.transactors}):
                await self._wait_until_stable(reader, group)
                await reader.read_offset(group)
        if waited.cancelled_caught:
            self.shared.history.troubles.append("a transaction does not end")
        reader.hang_up()

    async def _wait_until_stable(self, reader: StableReader, group: str) -> None:
        retried = AWAY | {ErrorCode.UNSTABLE_OFFSET_COMMIT}
        await reader.ask(reader.offset_request(group), OFFSET_FETCH_VERSION, retried=retried)
