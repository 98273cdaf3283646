"""The broker's own clients of its stores, as tests use them: without a broker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeVar

import trio
from minio.credentials.providers import StaticProvider

from compat_tests.harness.s3_server import ACCESS_KEY, SECRET_KEY
from engine.files.filesystem import PosixFileSystem
from tiering.stores.directory import DirectoryStore
from tiering.stores.s3 import S3Options, S3Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class Threads:
    async def run(self, job: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(job)


def directory_at(directory: Path) -> DirectoryStore:
    """A directory store as it is: with files of another store, or not existing yet."""
    return DirectoryStore(str(directory), Threads(), lambda: uuid.uuid4().hex, PosixFileSystem().open)


def store_at(endpoint: str, bucket: str = "bucket", secret: str = SECRET_KEY) -> S3Store:
    return S3Store(S3Options(endpoint, bucket, "us-east-1", StaticProvider(ACCESS_KEY, secret)), Threads())
