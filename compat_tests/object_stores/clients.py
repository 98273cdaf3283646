"""The broker's own client of S3, as tests use it: without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio
from minio.credentials.providers import StaticProvider

from compat_tests.harness.s3_server import ACCESS_KEY, SECRET_KEY
from tiering.stores.s3 import S3Options, S3Store

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Threads:
    async def run(self, job: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(job)


def store_at(endpoint: str, bucket: str = "bucket", secret: str = SECRET_KEY) -> S3Store:
    return S3Store(S3Options(endpoint, bucket, "us-east-1", StaticProvider(ACCESS_KEY, secret)), Threads())
