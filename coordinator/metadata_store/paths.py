"""Paths of the nodes of each kind; docs/formats/metadata.md describes their contents."""

CLUSTER = "/cluster"
MEMBERS = "/members"
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
IMPORT = "/import"
HISTORY = "/history"
ACCEPTING = "/accepting"

FIRST_CHANGE = 1


def member(broker_id: int) -> str:
    """A broker, as it registered last."""
    return f"{MEMBERS}/{broker_id}"


def broker(broker_id: int) -> str:
    """The node that exists while the broker's session lasts."""
    return f"{BROKERS}/{broker_id}"


def topic(name: str) -> str:
    """The topic's own node."""
    return f"{TOPICS}/{name}"


def partitions(topic_id: bytes) -> str:
    """The parent of a topic's partition states."""
    return f"{PARTITIONS}/{topic_id.hex()}"


def partition(topic_id: bytes, number: int) -> str:
    """The state of one partition."""
    return f"{PARTITIONS}/{topic_id.hex()}/{number}"


def partition_of(path: str) -> tuple[bytes, int]:
    """The topic id and the number in the path of a partition's state."""
    _, _, topic_id, number = path.split("/")
    return bytes.fromhex(topic_id), int(number)


def tier_deletion(topic_id: bytes) -> str:
    """The remains of a deleted topic in the remote tier."""
    return f"{TIER_DELETIONS}/{topic_id.hex()}"


def change(number: int) -> str:
    """The change of this number, zero-padded, so that names sort as numbers."""
    return f"{CHANGES}/{number:010}"


def is_logged(path: str) -> bool:
    """Whether a write to this node is repeated in a change."""
    return path in _LOGGED or path.startswith(_LOGGED_BELOW)


_LOGGED = (CONTROLLER_EPOCH, BROKER_CONFIGS, FEATURES)
_LOGGED_BELOW = (f"{MEMBERS}/", f"{TOPICS}/", f"{PARTITIONS}/")
