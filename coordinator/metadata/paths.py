"""Where each kind of node lives; docs/formats/metadata.md says what is in it."""

CLUSTER = "/cluster"
BROKERS = "/brokers"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"
TOPICS = "/topics"
PARTITIONS = "/partitions"
CHANGES = "/changes"
PRODUCER_IDS = "/producer-ids"
BROKER_CONFIGS = "/broker-configs"
FEATURES = "/features"
TIER = "/tier"
TIER_DELETIONS = "/tier-deletions"

CHANGES_KEPT = 200
FIRST_CHANGE = 1


def broker(broker_id: int) -> str:
    """The registration of a broker."""
    return f"{BROKERS}/{broker_id}"


def topic(name: str) -> str:
    """The topic itself."""
    return f"{TOPICS}/{name}"


def partitions(topic_id: bytes) -> str:
    """The parent of a topic's partition states."""
    return f"{PARTITIONS}/{topic_id.hex()}"


def partition(topic_id: bytes, number: int) -> str:
    """The state of one partition."""
    return f"{PARTITIONS}/{topic_id.hex()}/{number}"


def tier_deletion(topic_id: bytes) -> str:
    """What a deleted topic has left in the remote tier."""
    return f"{TIER_DELETIONS}/{topic_id.hex()}"


def change(sequence: int) -> str:
    """One change; zero-padded, so that names sort as numbers."""
    return f"{CHANGES}/{sequence:010}"
