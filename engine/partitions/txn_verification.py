"""Transaction verification in a partition: the transaction coordinator is asked before the first batch is appended.

After Kafka's UnifiedLog.maybeStartTransactionVerification and batchMissingRequiredVerification (KIP-890). Without it, a
late batch of a transaction that has ended would begin a hanging transaction. In the first protocol the coordinator
tells whether the transaction has the partition; in the second one it adds the partition. The batches of a producer keep
their order while they wait; batches of other producers pass them. A marker makes verifications before it void, unless
both are of the second protocol: there a late batch has an old producer epoch, and the marker of the transaction before
has the epoch of the next one.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from engine.api import SECOND_PROTOCOL, Joining, Marker, VerificationFuture
from engine.batches.batch import BatchHeader
from engine.commit.appends import Append
from engine.errors import EngineError, InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from engine.logs.producers.state import Producer, ProducerTable


class UnverifiedAppend(Append):
    """An append of a transaction. `verification` is None if its transaction was open in the partition when the batch
    came. `is_void`: a marker has made the verification void."""

    __slots__ = ("_is_enforced", "is_void", "protocol", "verification")

    verification: VerificationFuture | None
    is_void: bool
    protocol: int
    _is_enforced: bool

    def join(self, joining: Joining, producers: ProducerTable) -> None:
        """Start the verification, if the batch needs one; called first. Raises InvalidProducerEpoch."""
        known = producers.get(self.header.producer_id)
        if known is not None and self.header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"epoch {self.header.producer_epoch} of producer {self.header.producer_id} is older than {known.epoch}"
            )
        self.protocol, self._is_enforced, self.is_void = joining.protocol, joining.is_enforced, False
        self.verification = None if _is_open(known, self.header) else joining.ask(self.owner.partition)

    @property
    def is_decided(self) -> bool:
        """Whether the verification has its result, or is not needed."""
        return self.verification is None or self.verification.is_settled

    def check(self, producers: ProducerTable) -> None:
        """Check that the transaction of the batch is still the verified one. Raises InvalidTxnState,
        OutOfOrderSequence.

        A wrong epoch and duplicates are not checked here: ProducerTable.check finds them.
        """
        header = self.header
        known = producers.get(header.producer_id)
        if known is not None and (header.producer_epoch < known.epoch or known.knows(header)):
            return
        if _is_open(known, header):
            return
        if self._is_enforced and (self.verification is None or self.is_void):
            raise InvalidTxnState(f"the transaction of producer {header.producer_id} has ended meanwhile")
        if self.protocol >= SECOND_PROTOCOL and known is None and header.base_sequence:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins with sequence {header.base_sequence} in this partition"
            )


def _is_open(known: Producer | None, header: BatchHeader) -> bool:
    return known is not None and known.epoch == header.producer_epoch and known.transaction_from >= 0


class TxnVerification:
    """Appends of one partition that wait for their verification, by producer id.

    `pass_on`: called with each verified append; `refuse`: called with each other one and its error.
    """

    __slots__ = ("_pass_on", "_refuse", "_unsettled", "_waiting")

    def __init__(
        self, pass_on: Callable[[UnverifiedAppend], None], refuse: Callable[[UnverifiedAppend, EngineError], None]
    ) -> None:
        self._pass_on = pass_on
        self._refuse = refuse
        self._waiting: dict[int, deque[UnverifiedAppend]] = {}
        self._unsettled: dict[int, set[UnverifiedAppend]] = {}  # appends with a verification, until they are answered

    def submit(self, append: UnverifiedAppend) -> None:
        """Pass the append on when it is verified: at once, if it is and no append of its producer waits."""
        producer_id = append.header.producer_id
        if append.verification is not None:
            self._unsettled.setdefault(producer_id, set()).add(append)
            append.call_when_settled(partial(self._settled, append))
        if append.is_decided and producer_id not in self._waiting:
            self._decided(append)
            return
        self._waiting.setdefault(producer_id, deque()).append(append)
        if append.verification is not None and not append.is_decided:
            append.verification.call_when_settled(partial(self._go_on, producer_id))

    def ended(self, marker: Marker) -> None:
        """Make the verifications before this marker, which goes to the log, void."""
        for append in self._unsettled.get(marker.producer_id, ()):
            if marker.protocol < SECOND_PROTOCOL or append.protocol < SECOND_PROTOCOL:
                append.is_void = True

    def _settled(self, append: UnverifiedAppend) -> None:
        producer_id = append.header.producer_id
        of_producer = self._unsettled[producer_id]
        of_producer.remove(append)
        if not of_producer:
            del self._unsettled[producer_id]

    def _go_on(self, producer_id: int) -> None:
        """Handle the waiting appends of a producer in order, up to the first one without a result."""
        waiting = self._waiting.get(producer_id)
        while waiting and waiting[0].is_decided:
            self._decided(waiting.popleft())
        if not waiting:
            self._waiting.pop(producer_id, None)

    def _decided(self, append: UnverifiedAppend) -> None:
        refusal = None if append.verification is None else append.verification.refusal
        if refusal is None:
            self._pass_on(append)
        else:
            self._refuse(append, refusal)
