"""Kafka's error codes, and the one table from errors of the domain packages to these codes.

The engine and the control plane raise errors of their own; the protocol has codes. They are translated only here, so
that every API answers an error alike. Texts are not decided here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from coordinator import errors as control
from engine import errors as log


class ErrorCode(IntEnum):
    """Kafka's `Errors`, with their names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


CODE_BY_CLASS: Final[dict[type[Exception], ErrorCode]] = {
    log.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
    log.UnreadableMessage: ErrorCode.CORRUPT_MESSAGE,
    log.DecompressedTooLarge: ErrorCode.CORRUPT_MESSAGE,  # of stored records; Produce answers MESSAGE_TOO_LARGE
    log.InvalidRecord: ErrorCode.INVALID_RECORD,
    log.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    log.RecordsRefused: ErrorCode.INVALID_RECORD,
    log.InvalidTxnState: ErrorCode.INVALID_TXN_STATE,
    log.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    log.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    log.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    log.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    log.RecordListTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
    log.UnsupportedCompressionType: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    log.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    log.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    # Every producer retries a time-out by itself, and "unknown whether it was stored" covers "it was not".
    log.Overloaded: ErrorCode.REQUEST_TIMED_OUT,
    log.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    # The cluster's metadata named this broker, else the partition would not have been looked for here: as in
    # ReplicaManager.getPartitionOrException the client is sent to fresh metadata.
    log.UnknownPartition: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    log.NotLeaderOrFollower: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    log.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    log.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    log.StaleBrokerEpoch: ErrorCode.STALE_BROKER_EPOCH,
    log.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    log.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    log.LogsContradict: ErrorCode.KAFKA_STORAGE_ERROR,
    log.TierUnreachable: ErrorCode.KAFKA_STORAGE_ERROR,  # not in Fetch, see kafkawire.fetching.cold_loads
    control.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    control.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    control.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    control.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    control.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    control.NoReassignmentInProgress: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    control.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    control.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    control.EligibleLeadersNotAvailable: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    control.BrokerIdNotRegistered: ErrorCode.BROKER_ID_NOT_REGISTERED,
    control.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    control.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    control.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    control.InvalidTopicRequest: ErrorCode.INVALID_REQUEST,
    control.InvalidConfig: ErrorCode.INVALID_CONFIG,
    control.InvalidFeatureUpdate: ErrorCode.INVALID_UPDATE_VERSION,
    control.TooManyPartitions: ErrorCode.POLICY_VIOLATION,
    control.MetadataUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    control.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    control.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    control.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    control.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    control.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    control.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    control.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    control.GroupIsFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    control.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    control.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    control.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    control.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    control.TransactionTooLarge: ErrorCode.UNKNOWN_SERVER_ERROR,
    control.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    control.UnknownTransactionalId: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    control.MarkerNotWritten: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    control.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    control.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    control.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    control.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    control.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    control.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    control.SubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    control.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    control.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    control.GroupTooLarge: ErrorCode.UNKNOWN_SERVER_ERROR,
    control.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    control.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    control.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

MESSAGE_MAX_CHARACTERS: Final = 8_000

# Raised before there is a listener, or without a request: clients never see these errors.
NEVER_SENT: Final = frozenset(
    {
        log.StoreRefused,
        control.CannotStart,
        control.MetadataRolledBack,
        control.AcceptanceRefused,
        control.TransferRefused,
        control.NotFollowedInEpoch,
    }
)


def error_code_of(error: Exception) -> ErrorCode:
    """The code of a domain error; UNKNOWN_SERVER_ERROR for any other error, which is a fault of the broker."""
    return CODE_BY_CLASS.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)


def shortened(message: str | None) -> str | None:
    """Shorten a message that may quote the request to the length of a protocol string in UTF-8."""
    return None if message is None else message[:MESSAGE_MAX_CHARACTERS]
