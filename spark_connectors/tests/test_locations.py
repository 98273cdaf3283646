"""A location is the same for all processes, and its password is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connectors.locations import opened, resolved, shown


def test_a_location_is_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved("below") == str(tmp_path / "below")
    for location in (f"file:{tmp_path}/a b", f"file://{tmp_path}/a b"):
        assert resolved(location) == f"{tmp_path}/a b"


@pytest.mark.parametrize("location", ["dbfs:/staging", "s3a://bucket/staging"])
def test_a_location_of_unknown_kind(location: str) -> None:
    with pytest.raises(ValueError, match=f"{location} is no place for files"):
        resolved(location)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("/a b/?c", "file:///a b/?c"),
        ("/a/", "file:///a"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("s3://bucket/?scheme=http&endpoint_override=host:1", "s3://bucket"),
        ("s3://user@bucket/a", "s3://bucket/a"),
        ("s3://user:secret@bucket/a?region=x", "s3://bucket/a"),
        ("s3://user:sec/ret@bucket/a?region=x", "s3://bucket/a"),
        ("s3://user:sec?ret@bucket/a", "s3://bucket/a"),
    ],
)
def test_shown_location_has_no_credentials_and_no_options(location: str, told: str) -> None:
    assert shown(location) == told


@pytest.mark.parametrize(
    "location",
    [
        "s3a://user:secret@bucket/a",
        "s3://user:secr et@bucket/a",
        "s3://user:/secret@bucket",
        "s3://u:secret@b?unknown=1",
    ],
)
def test_no_error_tells_a_password(location: str) -> None:
    for refuse in (resolved, opened):
        with pytest.raises((ValueError, OSError), match="is no place for files") as refused:
            refuse(location)
        assert "secr" not in str(refused.value)
        assert refused.value.__cause__ is None
