"""Options for reads of sealed segments past the broker: `segments` and its additions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from spark_connectors.options import OptionRefused, Options, positive, truth

SPLIT_BYTES: Final = 128 << 20  # spark.sql.files.maxPartitionBytes' default, which workers cannot see
_OTHERS: Final = ("segments.clusterId", "segments.files", "segments.splitBytes", "segments.store")


@dataclass(frozen=True)
class SegmentOptions:
    """Options for reads of sealed segments. The catalogue is that of `brokers` (HTTP listeners), or else the remote
    tier. `store`: location of the tier for tasks, a URL that may contain a password; None: the location that brokers
    report.
    """

    brokers: tuple[str, ...]
    store: str | None = field(default=None, repr=False)
    cluster_id: str | None = None
    has_files: bool = False
    split_bytes: int = SPLIT_BYTES


def segment_options(options: Options) -> SegmentOptions | None:
    """Parse the options; None: everything is fetched. Raises OptionRefused."""
    given = options.text("segments")
    if given is None:
        for name in _OTHERS:
            if options.text(name) is not None:
                raise OptionRefused(f"option {name} says nothing without the option segments")
        return None
    store, cluster_id = options.text("segments.store"), options.text("segments.clusterId")
    has_files = options.parsed("segments.files", truth, False)
    split_bytes = options.parsed("segments.splitBytes", positive, SPLIT_BYTES)
    if _is_store(given):
        if store is not None or has_files:
            raise OptionRefused(
                "options segments.store and segments.files are for segments that brokers list, not for a store. The "
                "URL of a store has its own settings: segments=s3://KEY:SECRET@bucket/prefix?endpoint_override=host:port"
            )
        return SegmentOptions((), given, cluster_id, split_bytes=split_bytes)
    if cluster_id is not None:
        raise OptionRefused("option segments.clusterId is for a store: brokers know their cluster")
    if store is not None and not _is_store(store):
        raise OptionRefused("option segments.store: expected a URL such as s3://bucket or file:///directory")
    return SegmentOptions(options.parsed("segments", _brokers, ()), store, None, has_files, split_bytes)


def _is_store(url: str) -> bool:
    return urlsplit(url).scheme in ("s3", "file")


def _brokers(text: str) -> tuple[str, ...]:
    """Raises ValueError."""
    urls = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path or parts.query:
            raise ValueError("expected http://host:port of brokers, or a store: s3://bucket/prefix, file:///directory")
    if not urls:
        raise ValueError("it names no broker")
    return urls
