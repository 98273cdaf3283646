"""Folders at all kinds of locations."""

from __future__ import annotations

from spark_connectors.jobs.tables.places import below, with_settings
from spark_connectors.locations import opened


def test_a_folder_is_below_a_path_and_before_settings() -> None:
    assert below("/a/b?c", "kafkawire") == "/a/b?c/kafkawire"
    assert below("s3://k:s@bucket/a/?region=eu", "kafkawire") == "s3://k:s@bucket/a/kafkawire?region=eu"
    assert below("s3://bucket", "kafkawire") == "s3://bucket/kafkawire"


def test_settings_of_pyiceberg_become_those_of_pyarrow() -> None:
    told = {
        "s3.access-key-id": "key",
        "s3.secret-access-key": "se/cr+et",
        "s3.region": "eu-1",
        "s3.endpoint": "http://127.0.0.1:9000",
    }
    location = with_settings("s3a://bucket/a/b", told)
    assert location.startswith("s3://key:se%2Fcr%2Bet@bucket/a/b?region=eu-1&endpoint_override=http%3A%2F%2F127")
    system, path = opened(location)
    assert (system.type_name, path, system.region) == ("s3", "bucket/a/b", "eu-1")
    assert with_settings("s3://bucket/a", {}) == "s3://bucket/a"
    assert with_settings("file:///a", told) == "file:///a"
