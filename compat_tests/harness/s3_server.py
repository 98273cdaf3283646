"""A real S3 server over a directory, as a process of its own: VersityGW, or MinIO with KAFKAWIRE_S3_SERVER=minio."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import urlopen

from minio import Minio
from urllib3 import PoolManager

from compat_tests.harness.broker import free_port
from compat_tests.harness.requirements import need_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVER: Final = os.environ.get("KAFKAWIRE_S3_SERVER", "versitygw")
ACCESS_KEY, SECRET_KEY = "access", "a-secret-of-the-tests"
READY_WITHIN_S = 20


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running S3 server. The names of buckets have three letters or more."""

    endpoint: str

    def make_bucket(self, name: str) -> str:
        with PoolManager() as pool:
            client = Minio(
                self.endpoint.removeprefix("http://"), ACCESS_KEY, SECRET_KEY, secure=False, http_client=pool
            )
            client.make_bucket(name)
        return name


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Start a server, and kill it at the end. Its data are below `directory`."""
    address = f"127.0.0.1:{free_port()}"
    arguments = _arguments(address, directory / "buckets")
    program = need_s3_server(SERVER)
    (directory / "buckets").mkdir()
    environment = {
        **os.environ,
        "MINIO_ROOT_USER": ACCESS_KEY,
        "MINIO_ROOT_PASSWORD": SECRET_KEY,
        "MINIO_BROWSER": "off",
    }
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], env=environment, stdout=log, stderr=log)
    with process:
        try:
            deadline = time.monotonic() + READY_WITHIN_S
            while not _answers(f"http://{address}"):
                assert process.poll() is None, (directory / "server.log").read_text()
                assert time.monotonic() < deadline, "the S3 server does not start"
                time.sleep(0.05)
            yield S3Server(f"http://{address}")
        finally:
            process.kill()


def _arguments(address: str, directory: Path) -> list[str]:
    if SERVER == "minio":
        return ["server", "--quiet", "--address", address, str(directory)]
    assert SERVER == "versitygw", f"KAFKAWIRE_S3_SERVER is {SERVER!r}, not versitygw or minio"
    return ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", address, "posix", str(directory)]


def _answers(endpoint: str) -> bool:
    """Whether the server answers with another status than 503, which MinIO sends at its start."""
    try:
        urlopen(endpoint, timeout=READY_WITHIN_S).close()
    except HTTPError as error:
        error.close()
        return error.code != 503
    except OSError:
        return False
    return True
