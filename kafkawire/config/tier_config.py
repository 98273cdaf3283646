"""The part of the broker's configuration about the remote tier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from kafkawire.config import values as read
from kafkawire.config.coordinator_config import CoordinatorConfig
from kafkawire.config.keys import Update
from kafkawire.config.settings import setting
from kafkawire.config.topic_config import MIB
from kafkawire.config.values import LONG_MAX, ConfigError, StoreUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig(CoordinatorConfig):
    """See `kafkawire.config.broker_config.Config`. Defaults are Kafka's, where Kafka has the key."""

    tier_enable: bool = setting(
        "remote.log.storage.system.enable", read.boolean, "false",
        "Whether topics may copy closed segments to remote storage. tier.store names the storage.",
    )  # fmt: skip
    tier_store: StoreUrl | None = setting(
        "tier.store", read.object_store, "",
        "The remote storage for closed segments of topics with remote.storage.enable: file:///directory, or "
        "s3://bucket/prefix.",
    )  # fmt: skip
    tier_s3_endpoint: str = setting(
        "tier.s3.endpoint", read.text, "",
        "The URL of the S3 server, as http://host:port or https://host. Empty: AWS, in tier.s3.region.",
    )  # fmt: skip
    tier_s3_region: str = setting("tier.s3.region", read.text, "us-east-1", "The region that requests are signed for.")
    tier_s3_access_key: str = setting(
        "tier.s3.access.key", read.text, "",
        "The access key for the S3 server. Empty: AWS_ACCESS_KEY_ID of the environment, or the default profile of "
        "~/.aws/credentials.",
    )  # fmt: skip
    tier_s3_secret_key: str = setting(
        "tier.s3.secret.key", read.password, None, "The secret of tier.s3.access.key. It is never shown or logged."
    )
    tier_interval_ms: int = setting(
        "remote.log.manager.task.interval.ms", read.long(1), "30000",
        "The interval between two checks for segments to copy to remote storage, or to delete there.",
    )  # fmt: skip
    tier_copiers: int = setting(
        "tier.copiers", read.integer(1, 16), "2", "The number of segments that are copied at the same time."
    )
    tier_copy_max_bytes_per_s: int = setting(
        "remote.log.manager.copy.max.bytes.per.second", read.long(1), str(LONG_MAX),
        "The bytes that are copied to remote storage in a second. The rate holds over a few segments, and within "
        "each segment.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    tier_fetch_max_wait_ms: int = setting(
        "remote.fetch.max.wait.ms", read.integer(1), "500",
        "How long a Fetch without other records waits for records that are only in remote storage, if its max.wait "
        "is not shorter. Records that arrive later are returned by a later Fetch.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    tier_list_offsets_timeout_ms: int = setting(
        "remote.list.offsets.request.timeout.ms", read.long(1), "30000",
        "How long a ListOffsets waits for an answer from remote storage, if the request names no timeout. The "
        "response is then REQUEST_TIMED_OUT.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    tier_cache_dir: Path | None = setting(
        "tier.cache.dir", read.directory, "",
        "A directory of its own for parts of segments that were read from remote storage. Not set: tier-cache in the "
        "first of log.dirs. Its content is deleted at each start.",
    )  # fmt: skip
    tier_cache_size_bytes: int = setting(
        "tier.cache.size.bytes", read.long(0), str(1024 * MIB),
        "The maximum size of tier.cache.dir. The newest 16 MiB always stay.",
    )  # fmt: skip


def location_for_readers(config: TierConfig) -> str:
    """The location of the remote tier for readers of objects, as pyarrow takes it: without credentials, with the
    settings of a server that is not AWS."""
    location = str(config.tier_store)
    if config.tier_store is None or not config.tier_store.is_s3 or not config.tier_s3_endpoint:
        return location
    endpoint = urlsplit(config.tier_s3_endpoint)
    settings = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme, "region": config.tier_s3_region}
    return f"{location}?{urlencode(settings)}"


def check_tier(config: TierConfig) -> None:
    """Check combinations of keys. Raises ConfigError."""
    if config.tier_enable and config.tier_store is None:
        key = "remote.log.storage.system.enable"
        raise ConfigError(f"{key}=true: tier.store has to say where the segments go", key)
    if config.tier_store is not None and not config.tier_enable:
        raise ConfigError("tier.store: it takes remote.log.storage.system.enable=true", "tier.store")
    if bool(config.tier_s3_access_key) != bool(config.tier_s3_secret_key):
        raise ConfigError("tier.s3.access.key and tier.s3.secret.key: only one of them is set", "tier.s3.access.key")
