"""A tier in a directory, and its catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connectors.segments.bucket_catalogue import BucketCatalogue
from testkit.bucket_broker import Bucket


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


@pytest.fixture
def catalogue(bucket: Bucket) -> BucketCatalogue:
    return BucketCatalogue(f"file://{bucket.directory}")
