"""A shell with a network and processes of its own, so that commands there meet no other ports or brokers.

Everything that was started there ends with it. It has no way to other machines.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Self

import pytest

from compat_tests.harness.requirements import need_command

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 180.0
POLL_S = 0.05
DONE = "typed line ended with"


class Terminal:
    """A shell. Lines are typed one after the other, each when the one before has ended."""

    def __init__(self, directory: Path, log_path: Path) -> None:
        apart = [
            need_command("unshare", "install util-linux"),
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        if os.geteuid() != 0:
            apart += ["--user", "--map-root-user"]
        if subprocess.run([*apart, "true"], capture_output=True, timeout=TIMEOUT_S, check=False).returncode:
            pytest.skip("needs namespaces of its own: root, or a kernel that lets everybody have them")
        need_command("ip", "make system-deps")
        self._log_path = log_path
        with log_path.open("wb") as log:
            self._shell = subprocess.Popen(
                [*apart, "bash", "-m"], cwd=directory, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        code, said = self.type("ip link set lo up")
        assert code == 0, said

    def type(self, line: str) -> tuple[int, str]:
        """Type a line. Returns its exit code, and the output meanwhile, with that of work in the background."""
        begin = self.size()
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\nprintf '\\n%s %s.\\n' '{DONE}' $?\n".encode())
        self._shell.stdin.flush()
        said, _, rest = self.wait_for(f"\n{DONE} ", begin).partition(f"\n{DONE} ")
        return int(rest.partition(".")[0]), said

    def wait_for(self, text: str, begin: int = 0) -> str:
        """Wait for a text in the output from `begin` on, and return the output up to the end of that line."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while text not in (shown := self.shown(begin)) or not shown.partition(text)[2].count("\n"):
            assert self._shell.poll() is None, shown
            assert time.monotonic() < deadline_s, f"no {text!r} in {TIMEOUT_S:.0f} s:\n{shown}"
            time.sleep(POLL_S)
        return shown

    def size(self) -> int:
        """The size of the output so far, in bytes."""
        return self._log_path.stat().st_size

    def shown(self, begin: int = 0) -> str:
        with self._log_path.open("rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._shell.kill()
        self._shell.communicate(timeout=TIMEOUT_S)
