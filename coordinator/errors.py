"""The control plane's domain errors, each with a text for a human.

They know no Kafka error code: `kafkawire.requests.errors` holds the one table from these classes to codes. The texts
follow those of Kafka's controller (Topic, ReplicationControlManager), because tools and people search for them.
"""


class CoordinatorError(Exception):
    """Base of all errors of the control plane: refusals and failures."""


class CannotStart(CoordinatorError):
    """The broker must not start: a foreign or newer store, a store in use, a broker id in use. One clear line."""


class MetadataRolledBack(CannotStart):
    """The metadata store is as of an earlier time, or holds another history than this broker has followed."""


class AcceptanceRefused(CoordinatorError):
    """The acceptance of a rolled back metadata store is refused. One clear line."""


class TransferRefused(CoordinatorError):
    """A cluster's metadata are not exported from a store, or not imported into it. One clear line."""


# Invalid requests


class InvalidTopicName(CoordinatorError):
    """The name is not legal, or collides with another if '.' and '_' count as the same."""


class TopicExists(CoordinatorError):
    """A topic of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic '{name}' already exists.")


class UnknownTopic(CoordinatorError):
    """No topic of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The topic '{name}' does not exist.")


class UnknownTopicId(CoordinatorError):
    """No topic of this id exists."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"No topic has the id {topic_id.hex()}.")


class NotFollowedInEpoch(CoordinatorError):
    """The broker does not follow that leader any more, or the partition has no leader with all acknowledged records."""

    def __init__(self) -> None:
        super().__init__("The partition has another leader by now, or none.")


class UnknownPartition(CoordinatorError):
    """There is no such topic, or it has no such partition."""


class NoReassignmentInProgress(CoordinatorError):
    """There is no reassignment to cancel."""


class ElectionNotNeeded(CoordinatorError):
    """The partition has the leader that an election would choose."""


class PreferredLeaderNotAvailable(CoordinatorError):
    """The first replica cannot lead: it is away, or not in sync."""


class EligibleLeadersNotAvailable(CoordinatorError):
    """None of the replicas serves."""


class BrokerIdNotRegistered(CoordinatorError):
    """No broker of this id is registered."""


class InvalidPartitions(CoordinatorError):
    """The number of partitions is neither positive nor -1."""


class InvalidReplicationFactor(CoordinatorError):
    """The replication factor is neither positive nor -1, or there are not enough brokers for it."""


class InvalidReplicaAssignment(CoordinatorError):
    """A manual assignment has gaps, repeats, unknown brokers or replica lists of different length."""


class InvalidTopicRequest(CoordinatorError):
    """The request contradicts itself, or asks for something that is never done (Kafka: INVALID_REQUEST)."""


class InvalidConfig(CoordinatorError):
    """A config has an unknown key or a bad value, is not supported yet, or cannot be changed at run time."""


class InvalidFeatureUpdate(CoordinatorError):
    """A feature is not known, has no such level, or would go the wrong way (Kafka: INVALID_UPDATE_VERSION)."""


class TooManyPartitions(CoordinatorError):
    """More partitions at once than the broker takes (Kafka: POLICY_VIOLATION)."""


# Failures at present


class MetadataUnavailable(CoordinatorError):
    """The metadata store cannot be reached, or the outcome of a change is not known. Retriable (REQUEST_TIMED_OUT)."""


# Groups. Their texts are for logs: clients are told a code alone.


class GroupError(CoordinatorError):
    """Base of the errors of a group."""


class InvalidGroupId(GroupError):
    """The group id is empty."""


class InvalidSessionTimeout(GroupError):
    """The session timeout is not within the broker's bounds."""


class UnknownMember(GroupError):
    """No such group, or no such member in it: the member joins anew."""


class IllegalGeneration(GroupError):
    """The member names a generation that is over."""


class RebalanceInProgress(GroupError):
    """The group is gathering its members: the member joins again."""


class InconsistentProtocol(GroupError):
    """The member has no protocol in common with the others, or names another one than was elected."""


class FencedInstance(GroupError):
    """Another process came with the same group instance id later (KIP-345)."""


class GroupIsFull(GroupError):
    """group.max.size is reached."""


class MemberIdRequired(GroupError):
    """A new member is told its id and joins again with it. So a client that gives up leaves nothing behind
    (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id


class UnknownGroup(GroupError):
    """No group of this id exists."""


class GroupNotEmpty(GroupError):
    """The group has members: it cannot be deleted, nor can offsets it uses."""


class SubscribedToTopic(GroupError):
    """Members of the group read the topic whose offsets are to be deleted."""


class OffsetMetadataTooLarge(GroupError):
    """A committed offset carries more text than offset.metadata.max.bytes."""


class UnstableOffset(GroupError):
    """A transaction that is open has an offset for the partition: which one counts is not decided (KIP-447)."""


class GroupTooLarge(GroupError):
    """The metadata of the group's members do not fit into a record (Kafka: UNKNOWN_SERVER_ERROR)."""


# Transactions.


class TransactionError(CoordinatorError):
    """Base of the errors of the coordinator of a transactional id."""


class InvalidProducerIdMapping(TransactionError):
    """The transactional id is not known, or another producer id belongs to it."""


class ProducerFenced(TransactionError):
    """Another producer began with the same transactional id later, or the transaction took too long."""


class ConcurrentTransactions(TransactionError):
    """The transaction before is decided, but not over: the client tries again."""


class InvalidTransactionState(TransactionError):
    """There is no transaction that could end in this way."""


class InvalidTransactionTimeout(TransactionError):
    """The transaction timeout is not positive, or longer than transaction.max.timeout.ms."""


class TransactionTooLarge(TransactionError):
    """The partitions of the transaction do not fit into a record (Kafka: UNKNOWN_SERVER_ERROR)."""


class TransactionAbortable(TransactionError):
    """The transaction does not have the partition of the write: it can be aborted (KIP-890)."""


class UnknownTransactionalId(TransactionError):
    """The transactional id is not known."""


# Writes in a transaction, and its end


class MarkerNotWritten(TransactionError):
    """The partition's leader cannot write the marker now; its cause says why."""


class StaleProducerEpoch(TransactionError):
    """The partition knows a newer epoch of the producer."""


class TransactionCoordinatorFenced(TransactionError):
    """The partition knows a newer epoch of the producer's coordinator."""


# Coordinators of groups and of transactions


class NotCoordinator(GroupError, TransactionError):
    """The broker does not lead the partition of the internal topic, or has just lost it."""


class CoordinatorLoading(GroupError, TransactionError):
    """The partition is being read after a start: the client tries again."""


class CoordinatorNotAvailable(GroupError, TransactionError):
    """The internal topic cannot be written, or does not exist yet."""
