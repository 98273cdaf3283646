"""A real S3 server: VersityGW over a directory, as a process of its own."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compat_tests.harness.broker import free_port, someone_listens
from compat_tests.harness.requirements import need_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS_KEY, SECRET_KEY = "access", "a-secret-of-the-tests"
READY_WITHIN_S = 20


@dataclass(frozen=True, slots=True)
class S3Server:
    """`directory` has a directory for each bucket."""

    endpoint: str
    directory: Path

    def make_bucket(self, name: str) -> str:
        (self.directory / name).mkdir()
        return name


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Started, and at the end killed."""
    program, port = need_s3_server(), free_port()
    (directory / "buckets").mkdir()
    command = [str(program), "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"127.0.0.1:{port}"]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen([*command, "posix", str(directory / "buckets")], stdout=log, stderr=log)
    with process:
        try:
            deadline = time.monotonic() + READY_WITHIN_S
            while not someone_listens(f"127.0.0.1:{port}"):
                assert process.poll() is None, (directory / "server.log").read_text()
                assert time.monotonic() < deadline, "the S3 server does not start"
                time.sleep(0.05)
            yield S3Server(f"http://127.0.0.1:{port}", directory / "buckets")
        finally:
            process.kill()
