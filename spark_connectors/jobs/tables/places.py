"""Folders of data files at a table's location."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa
from pyarrow import fs

from spark_connectors.jobs.tables.errors import FileRefused
from spark_connectors.jobs.tables.facts import NewFile
from spark_connectors.jobs.tables.schemas import check_fits
from spark_connectors.locations import opened

_S3: Final = "s3://"


def below(location: str, folder: str) -> str:
    """Location of a folder within a resolved location. Settings of a URL stay at its end."""
    path, mark, settings = location.partition("?") if "://" in location else (location, "", "")
    return f"{path.rstrip('/')}/{folder}{mark}{settings}"


def check_files(location: str, files: Sequence[NewFile], schema: pa.Schema) -> None:
    """Check that the files exist with the described sizes, and that their rows fit the schema. A missing file (after a
    sweep, for instance) would make the table unreadable. Raises FileRefused, SchemaRefused.
    """
    system, path = opened(location)
    for file in files:
        check_fits(file.schema, schema)
    for file, found in zip(files, system.get_file_info([f"{path}/{file.path}" for file in files]), strict=True):
        if found.size != file.size_bytes:
            raise FileRefused(
                f"{file.path} is not there, or has not the {file.size_bytes} bytes that it was told to have"
            )


def delete_aged(location: str, age_s: float, now_s: float, is_wanted: Callable[[str], bool]) -> int:
    """Delete the files directly in a folder that are at least that old and that `is_wanted` selects by name. Returns
    their number. Raises OSError if the folder cannot be listed.
    """
    system, path = opened(location)
    deleted = 0
    for one in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        is_aged = one.mtime_ns is not None and one.mtime_ns <= (now_s - age_s) * 1e9
        if one.type == fs.FileType.File and is_aged and is_wanted(one.base_name):
            with suppress(FileNotFoundError):
                system.delete_file(one.path)
                deleted += 1
    return deleted


def with_settings(location: str, properties: Mapping[str, Any]) -> str:
    """URL for pyarrow, with the S3 settings of pyiceberg's properties, from a URL without settings."""
    location = location.replace("s3a://", _S3, 1)
    if not location.startswith(_S3):
        return location
    user, secret = properties.get("s3.access-key-id"), properties.get("s3.secret-access-key")
    credentials = f"{quote(user, safe='')}:{quote(secret, safe='')}@" if user and secret else ""
    settings = {"region": properties.get("s3.region"), "endpoint_override": properties.get("s3.endpoint")}
    told = urlencode({name: value for name, value in settings.items() if value})
    return f"{_S3}{credentials}{location.removeprefix(_S3)}{f'?{told}' if told else ''}"
