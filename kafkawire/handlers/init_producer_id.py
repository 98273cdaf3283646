"""InitProducerId, key 22: an id for an idempotent or a transactional producer (KIP-98).

Behavior:
- Without a transactional id the response is a new id and epoch 0, whatever id the producer had before. The producer
  raises its epoch by itself, and asks again only when its epochs are used up (KIP-360), as in Kafka.
- With a transactional id the response is its producer id and a new epoch: the earlier producer is fenced. An open
  transaction is aborted first. The request waits for that for at most 100 ms; then it is CONCURRENT_TRANSACTIONS.
- An id without an epoch, or an epoch without an id, is INVALID_REQUEST, and so is an empty transactional id.
- The client needs WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.

Version notes: 3 id and epoch in the request (KIP-360), 4 PRODUCER_FENCED, 5 transactions' errors (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError, MetadataUnavailable
from coordinator.transactions.api import ProducerIdentity
from kafkawire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.futures import until_settled
from kafkawire.requests.transactions import code_of_refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_PRODUCER: Final = ProducerIdentity(NO_ID, NO_EPOCH)
FIRST_VERSION_WITH_FENCED: Final = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Answer with an id, or with an error."""
    code = _check(context, request)
    if code is not ErrorCode.NONE:
        return _refuse(code)
    try:
        producer_id, epoch = await _identity(context, request)
    except MetadataUnavailable:
        return _refuse(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )  # other codes are fatal to old clients (RPCProducerIdManager)
    except CoordinatorError as error:
        return _refuse(code_of_refusal(error, knows_fenced=context.api_version >= FIRST_VERSION_WITH_FENCED))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def refuse(context: RequestContext, request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """A response with the error."""
    return _refuse(code)


def _check(context: RequestContext, request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id is not None:
        if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) and not _may_write(
        context, context.broker.cluster.image.topics
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH) or request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


async def _identity(context: RequestContext, request: InitProducerIdRequest) -> ProducerIdentity:
    """The id and epoch of the producer. Raises CoordinatorError."""
    if request.transactional_id is None:
        return ProducerIdentity(await context.broker.cluster.new_producer_id(), 0)
    expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    pending = context.broker.transactions.initialise(
        request.transactional_id, request.transaction_timeout_ms, None if expected == NO_PRODUCER else expected
    )
    await until_settled(pending)
    return pending.result()


def _may_write(context: RequestContext, topics: Iterable[str]) -> bool:
    """Whether the client may write to any of the topics (KIP-679)."""
    return any(context.authorize(Operation.WRITE, ResourceType.TOPIC, topic) for topic in topics)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH)


API = Api("init_producer_id", InitProducerIdRequest, handle, refuse, 0, 5)
