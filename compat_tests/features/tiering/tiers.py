"""Stores of the tiers of these tests, and broker settings with which segments are soon copied."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from compat_tests.features.object_stores.clients import directory_at, store_at
from compat_tests.harness.s3_server import ACCESS_KEY, SECRET_KEY, s3_server
from tiering.object_store import ObjectMissing
from tiering.parallel import keys_below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tiering.object_store import ObjectStore

QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
ROOT = "lake"


def in_bucket(bucket: str, endpoint: str) -> dict[str, str]:
    """Settings of a broker whose tier is in that bucket."""
    return {
        "tier.store": f"s3://{bucket}/{ROOT}",
        "tier.s3.endpoint": endpoint,
        "tier.s3.access.key": ACCESS_KEY,
        "tier.s3.secret.key": SECRET_KEY,
    }


@dataclass(frozen=True)
class Tier:
    """A tier: the settings of the broker for it, and an own client of its store."""

    given: dict[str, str]
    store: ObjectStore
    root: str

    def names(self) -> list[str]:
        """The names of all objects, below its root."""
        return [key.removeprefix(self.root) for key in trio.run(keys_below, self.store, self.root)]

    def content(self, name: str) -> bytes:
        """The content of an object; empty if it is gone."""
        with suppress(ObjectMissing):
            return trio.run(self.store.get, self.root + name)
        return b""


@contextmanager
def tier(kind: str, directory: Path) -> Iterator[Tier]:
    """A tier in a directory, `tier` below `directory`, or on a real S3 server."""
    if kind == "directory":
        root = directory / "tier"
        yield Tier({"tier.store": f"file://{root}"}, directory_at(root), "")
        return
    with s3_server(directory) as server:
        bucket = server.make_bucket("bucket")
        with closing(store_at(server.endpoint, bucket)) as store:
            yield Tier(in_bucket(bucket, server.endpoint), store, f"{ROOT}/")
