"""What a handler is given besides the request: who asks, over which listener, and the broker's interfaces.

`authorize` is asked for every resource a request touches, from the first handler on; who may do what is decided by the
`Authorizer` behind it. This module decides nothing and knows no message.
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
from kafkawire.security.accepted_links import PRINCIPAL_OF_BROKERS, AcceptedLinks

if TYPE_CHECKING:
    from coordinator.api import BrokerInfo, ClusterService
    from coordinator.groups.api import GroupService
    from coordinator.transactions.api import MarkerWriter, TransactionPartitions, TransactionService
    from engine.api import PartitionStore, TopicPartition
    from kafkawire.config.entries import ConfigCatalogue
    from kafkawire.config.log_levels import LogLevels
    from kafkawire.fetching.cold_loads import ColdLoads
    from kafkawire.fetching.link_session import FetchedOver
    from kafkawire.fetching.sessions import FetchSessionCache
    from kafkawire.requests.cold_searches import ColdSearches
    from kafkawire.requests.metrics import RequestMetrics
    from kafkawire.requests.throttles import Throttles
    from kafkawire.wire.connection_info import ConnectionInfo

CLUSTER_NAME: Final = "kafka-cluster"
ANONYMOUS: Final = "User:ANONYMOUS"
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, never bound

# Runs a job that takes long and touches nothing of the loop's, and lets the loop go on meanwhile.
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


# AclEntry.supportedOperations: what can be asked about, and so what "authorized operations" can list.
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


def ignore(_: TopicPartition) -> None:
    """Of a broker that has no followers."""


class Authorizer(Protocol):
    """Who may do what. Asked on the hot path: it answers from memory."""

    def __call__(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str, /
    ) -> bool: ...


def allow_all(principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
    """The Authorizer of a broker without security. A config that asks for another one does not start."""
    return True


def cluster_authorizer(
    principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str
) -> bool:
    """The Authorizer of a broker among several: as `allow_all`, but what brokers ask of each other takes a broker that
    has proved to be one (RULES K23)."""
    return operation != Operation.CLUSTER_ACTION or principal.startswith(PRINCIPAL_OF_BROKERS)


class FollowerLinks(Protocol):
    """The links over which other brokers fetch; `kafkawire.replication.followers.Followers`."""

    def fetched(self, link: ConnectionInfo) -> FetchedOver: ...
    def responded(self, link: ConnectionInfo) -> None: ...
    def check_reads(self) -> None: ...


class HandlerConfig(Protocol):
    """The part of the broker's configuration that handlers obey; `kafkawire.config.broker_config.Config` has it."""

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
    """What the broker offers its handlers; joined in `broker.py`."""

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
    links: AcceptedLinks = field(default_factory=AcceptedLinks)
    followers: FollowerLinks
    throttles: Throttles
    transactions_of_cluster: TransactionPartitions | None = None  # None: all are coordinated here
    note_follower: Callable[[TopicPartition], None] = ignore  # of what is led here: one is not in the ISR

    @property
    def transactions_anywhere(self) -> TransactionPartitions:
        """For whoever writes in a transaction. What is asked of a coordinator goes to `transactions`: to this one."""
        return self.transactions_of_cluster or self.transactions


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings."""

    broker: BrokerInterfaces
    connection: ConnectionInfo
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    advertised: Sequence[tuple[int, int, int]]  # per served API: key, lowest and highest version
    received_s: float  # on trio's clock
    principal: str

    def is_broker(self, broker_id: int) -> bool:
        """Whether who asks has proved to be that broker, which may act as one."""
        is_it = self.principal == f"{PRINCIPAL_OF_BROKERS}{broker_id}"
        return is_it and self.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorize(self, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        """Whether the principal of this request may do this."""
        return self.broker.authorizer(
            self.principal, self.connection.peer_host, operation, resource_type, resource_name
        )

    def authorized_operations(self, resource_type: ResourceType, resource_name: str) -> int:
        """All that the principal may do with a resource, as the bit field of KIP-430."""
        return sum(
            1 << operation
            for operation in OPERATIONS_BY_RESOURCE[resource_type]
            if self.authorize(operation, resource_type, resource_name)
        )

    def endpoint_of(self, broker: BrokerInfo) -> tuple[str, int] | None:
        """Where clients of this request's listener reach `broker`, or None if they cannot.

        A broker that binds every address and was told no other advertises, to each client, the address that client
        has reached it by.
        """
        endpoint = broker.endpoint(self.connection.listener_name)
        if endpoint is None:
            return None
        host = self.connection.local_address if endpoint.host in ANY_ADDRESS else endpoint.host
        return host, endpoint.port

    def endpoints(self, brokers: Iterable[BrokerInfo]) -> list[tuple[BrokerInfo, str, int]]:
        """Those of them that clients of this request's listener can reach, with where."""
        reachable = ((broker, self.endpoint_of(broker)) for broker in brokers)
        return [(broker, *endpoint) for broker, endpoint in reachable if endpoint is not None]
