"""The control plane's domain errors, each with a text for a human.

They know no Kafka error code: `kafkawire.errors` holds the one table from these classes to codes. The texts follow
those of Kafka's controller (Topic, ReplicationControlManager), because tools and people search for them.
"""


class CoordinatorError(Exception):
    """Base of everything the control plane refuses or cannot do."""


class CannotStart(CoordinatorError):
    """The broker must not start: a foreign or newer store, a store in use, a broker id in use. One clear line."""


# What a request gets wrong


class InvalidTopicName(CoordinatorError):
    """The name is not legal, or collides with another once '.' and '_' are taken for the same."""


class TopicExists(CoordinatorError):
    """A topic of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic '{name}' already exists.")


class UnknownTopic(CoordinatorError):
    """No topic of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic '{name}' does not exist.")


class UnknownTopicId(CoordinatorError):
    """No topic of this id exists."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"No topic has the id {topic_id.hex()}.")


class InvalidPartitions(CoordinatorError):
    """The number of partitions is neither positive nor -1."""


class InvalidReplicationFactor(CoordinatorError):
    """The replication factor is neither positive nor -1, or there are not enough brokers for it."""


class InvalidReplicaAssignment(CoordinatorError):
    """A manual assignment has gaps, repeats, unknown brokers or replica lists of different length."""


class InvalidTopicRequest(CoordinatorError):
    """The request contradicts itself: counts together with a manual assignment (Kafka: INVALID_REQUEST)."""


class InvalidConfig(CoordinatorError):
    """A topic config has an unknown key, a bad value, or one that is not supported yet."""


class TooManyPartitions(CoordinatorError):
    """More partitions at once than the broker takes (Kafka: POLICY_VIOLATION)."""


# What the cluster cannot do at present


class NotController(CoordinatorError):
    """This broker does not hold the controller's role; the client finds the one that does in Metadata."""


class MetadataUnavailable(CoordinatorError):
    """The metadata store cannot be reached, or the outcome of a change is not known. Retriable (REQUEST_TIMED_OUT)."""
