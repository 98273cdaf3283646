"""Context of a handler besides the request: the client, its listener, and the broker's interfaces.

`authorize` is called for every resource that a request touches; the `Authorizer` behind it decides. This module decides
nothing and knows no message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkawire.requests.departed import Departed
from kafkawire.requests.failures import FailureLog
from kafkawire.requests.topic_rows import TopicRows
from kafkawire.requests.transactions import TransactionRules
from kafkawire.requests.unserved_reads import UnservedReads
from kafkawire.security.accepted_links import PRINCIPAL_OF_BROKERS, AcceptedLinks

if TYPE_CHECKING:
    from coordinator.api import BrokerInfo, ClusterService
    from coordinator.groups.api import GroupService
    from coordinator.transactions.api import MarkerWriter, TransactionPartitions, TransactionService
    from engine.api import PartitionStore, TopicIdPartition
    from kafkawire.config.entries import ConfigCatalogue
    from kafkawire.config.log_levels import LogLevels
    from kafkawire.fetching.cold_loads import ColdLoads
    from kafkawire.fetching.link_session import PeerFetch
    from kafkawire.fetching.sessions import FetchSessionCache
    from kafkawire.requests.cold_searches import ColdSearches
    from kafkawire.requests.metrics import RequestMetrics
    from kafkawire.requests.throttles import Throttles
    from kafkawire.wire.connection_info import ConnectionInfo

CLUSTER_NAME: Final = "kafka-cluster"
ANONYMOUS: Final = "User:ANONYMOUS"
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, never bound

# Runs a long job that touches no state of the event loop, while the loop goes on.
Elsewhere = Callable[[Callable[[], Any]], Awaitable[Any]]


class Operation(IntEnum):
    """Kafka's AclOperation."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's ResourceType."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


# AclEntry.supportedOperations: the operations of a resource that "authorized operations" can list.
OPERATIONS_BY_RESOURCE: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def ignore(_: TopicIdPartition) -> None:
    """The `note_follower` of a broker without followers: does nothing."""


class Authorizer(Protocol):
    """Decides whether a principal may do an operation. It is on the hot path, and answers from memory."""

    def __call__(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str, /
    ) -> bool: ...


def allow_all(principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
    """The Authorizer of a broker without security. A broker whose config asks for another one does not start."""
    return True


class FollowerLinks(Protocol):
    """Peer connections over which followers fetch; see `kafkawire.replication.followers.Followers`."""

    def note_fetch(self, link: ConnectionInfo) -> PeerFetch: ...
    def note_response(self, link: ConnectionInfo) -> None: ...
    def check_reads(self) -> None: ...


class HandlerConfig(Protocol):
    """The broker configs that handlers read; `kafkawire.config.broker_config.Config` has them."""

    @property
    def node_id(self) -> int: ...
    @property
    def auto_create_topics_enable(self) -> bool: ...
    @property
    def delete_topic_enable(self) -> bool: ...
    @property
    def num_partitions(self) -> int: ...
    @property
    def max_fetch_size_bytes(self) -> int: ...
    @property
    def max_request_partitions(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInterfaces:
    """Interfaces of the broker for its handlers; assembled in `broker.py`."""

    store: PartitionStore
    cluster: ClusterService
    groups: GroupService
    transactions: TransactionService
    markers: MarkerWriter
    config: HandlerConfig
    configs: ConfigCatalogue
    fetch_sessions: FetchSessionCache
    cold_loads: ColdLoads
    cold_searches: ColdSearches
    metrics: RequestMetrics
    log_levels: LogLevels
    now_ms: Callable[[], int]
    authorizer: Authorizer
    decode_elsewhere: Elsewhere
    transaction_rules: TransactionRules = field(default_factory=TransactionRules)
    failures: FailureLog = field(default_factory=FailureLog)
    topic_rows: TopicRows = field(default_factory=TopicRows)
    departed: Departed = field(default_factory=Departed)
    unserved_reads: UnservedReads = field(default_factory=UnservedReads)
    links: AcceptedLinks = field(default_factory=AcceptedLinks)
    followers: FollowerLinks
    throttles: Throttles
    transactions_of_cluster: TransactionPartitions | None = None  # None: all are coordinated here
    note_follower: Callable[[TopicIdPartition], None] = ignore  # for led partitions: a follower is not in the ISR

    @property
    def transactions_anywhere(self) -> TransactionPartitions:
        """Coordinators of all brokers, for writers in a transaction.

        `transactions` is only this broker's coordinator.
        """
        return self.transactions_of_cluster or self.transactions


@dataclass(slots=True)
class RequestContext:
    """Context of one request."""

    broker: BrokerInterfaces
    connection: ConnectionInfo
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    advertised: Sequence[tuple[int, int, int]]  # per served API: key, lowest and highest version
    received_s: float  # on trio's clock
    principal: str

    @property
    def is_of_any_broker(self) -> bool:
        """Whether the client is authenticated as a broker of the cluster (RULES K23)."""
        return self.principal.startswith(PRINCIPAL_OF_BROKERS)

    def is_broker(self, broker_id: int) -> bool:
        """Whether the client is authenticated as that broker, and may act as a broker."""
        is_it = self.principal == f"{PRINCIPAL_OF_BROKERS}{broker_id}"
        return is_it and self.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorize(self, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        """Whether the principal of this request may do this."""
        return self.broker.authorizer(
            self.principal, self.connection.peer_host, operation, resource_type, resource_name
        )

    def authorized_operations(self, resource_type: ResourceType, resource_name: str) -> int:
        """All operations that the principal may do with a resource, as the bit field of KIP-430."""
        return sum(
            1 << operation
            for operation in OPERATIONS_BY_RESOURCE[resource_type]
            if self.authorize(operation, resource_type, resource_name)
        )

    def endpoint_of(self, broker: BrokerInfo) -> tuple[str, int] | None:
        """Host and port at which clients of this request's listener reach `broker`; None if they cannot.

        A broker that binds every address, without a configured advertised address, advertises to each client the
        address by which the client has reached it.
        """
        endpoint = broker.endpoint(self.connection.listener_name)
        if endpoint is None:
            return None
        host = self.connection.local_address if endpoint.host in ANY_ADDRESS else endpoint.host
        return host, endpoint.port

    def endpoints(self, brokers: Iterable[BrokerInfo]) -> list[tuple[BrokerInfo, str, int]]:
        """Brokers that clients of this request's listener can reach, with host and port."""
        reachable = ((broker, self.endpoint_of(broker)) for broker in brokers)
        return [(broker, *endpoint) for broker, endpoint in reachable if endpoint is not None]
