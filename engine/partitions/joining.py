"""Batches of transactions that their partition may not be a part of yet: whoever coordinates them is asked first.

After Kafka's UnifiedLog.maybeStartTransactionVerification and batchMissingRequiredVerification (KIP-890). Without it a
batch that comes late, when its transaction is over, would begin one that nobody ends. In the first protocol the
coordinator says whether it has the partition, and a marker that comes meanwhile makes that void: what is allowed then
is of a transaction that is over. In the second one it adds the partition, and the epoch tells what is late. Only the
producer that waits waits: its batches keep their order, others pass.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from engine.api import SECOND_PROTOCOL, Joining, Permission
from engine.batches.batch import BatchHeader
from engine.commit.appends import Append, Owner
from engine.errors import EngineError, InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from engine.logs.producer_state import Producer, ProducerTable


class JoiningAppend(Append):
    """`permission` to append it; None: its transaction was open here when it came. `guard` is what was known of its
    producer then."""

    __slots__ = ("_guard", "_protocol", "permission")

    def __init__(
        self,
        owner: Owner,
        records: memoryview,
        header: BatchHeader,
        role: object,
        wants_all: bool,
        hurries: bool = False,
    ) -> None:
        super().__init__(owner, records, header, role, wants_all, hurries)
        self.permission: Permission | None = None
        self._guard: Producer | None = None
        self._protocol = SECOND_PROTOCOL

    def join(self, joining: Joining, producers: ProducerTable) -> None:
        """Ask for permission, if it takes one. Raises InvalidProducerEpoch."""
        known = self._guard = producers.get(self.header.producer_id)
        if known is not None and self.header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"epoch {self.header.producer_epoch} of producer {self.header.producer_id} is older than {known.epoch}"
            )
        self._protocol = joining.protocol
        if not _is_open(known, self.header):
            self.permission = joining.ask(self.owner.partition)

    @property
    def is_decided(self) -> bool:
        """Whether it is known if it may be appended."""
        return self.permission is None or self.permission.is_settled

    def check(self, producers: ProducerTable) -> None:
        """Whether its transaction is still the one that it was to be in. What is wrong with its epoch, or what it is a
        duplicate of, is found elsewhere. Raises InvalidTxnState, OutOfOrderSequence."""
        header = self.header
        known = producers.get(header.producer_id)
        if known is not None and (header.producer_epoch < known.epoch or known.knows(header)):
            return
        if _is_open(known, header):
            return
        if self._protocol < SECOND_PROTOCOL:
            if self.permission is None or known != self._guard:
                raise InvalidTxnState(f"the transaction of producer {header.producer_id} has ended meanwhile")
        elif known is None and header.base_sequence:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins with sequence {header.base_sequence} in this partition"
            )


def _is_open(known: Producer | None, header: BatchHeader) -> bool:
    return known is not None and known.epoch == header.producer_epoch and known.transaction_from >= 0


class JoiningAppends:
    """Of one partition, by producer. `pass_on` gets them when they are allowed, `refuse` those that are not."""

    __slots__ = ("_pass_on", "_refuse", "_waiting")

    def __init__(
        self, pass_on: Callable[[JoiningAppend], None], refuse: Callable[[JoiningAppend, EngineError], None]
    ) -> None:
        self._pass_on = pass_on
        self._refuse = refuse
        self._waiting: dict[int, deque[JoiningAppend]] = {}

    def submit(self, append: JoiningAppend) -> None:
        """It waits, unless it may go on at once, and nothing of its producer is before it."""
        producer_id = append.header.producer_id
        if append.is_decided and producer_id not in self._waiting:
            self._decided(append)
            return
        self._waiting.setdefault(producer_id, deque()).append(append)
        if append.permission is not None and not append.is_decided:
            append.permission.call_when_settled(partial(self._go_on, producer_id))

    def _go_on(self, producer_id: int) -> None:
        """In their order, as far as it is known what becomes of them."""
        waiting = self._waiting.get(producer_id)
        while waiting and waiting[0].is_decided:
            self._decided(waiting.popleft())
        if not waiting:
            self._waiting.pop(producer_id, None)

    def _decided(self, append: JoiningAppend) -> None:
        refusal = None if append.permission is None else append.permission.refusal
        if refusal is None:
            self._pass_on(append)
        else:
            self._refuse(append, refusal)
