"""The README's commands in a copy of the tree, line by line as they stand there, and how long the first ones take."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from compat_tests.features.readme.terminal import Terminal
from compat_tests.harness.requirements import ROOT, need_command, need_kcat

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from compat_tests.features.readme.conftest import Installed

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The output of commands that work, where an exit code says little.
SHOWN = {
    "kcat -C": "0 k1=hello a=b\n",
    "kcat -Q": "tour [0] offset 1\n",
    "timeout": "hello\n",
    ".venv/bin/kafkawire groups": "tour",
    "curl": 'kafkawire_requests_total{request="produce"}',
    "ls": "00000000000000000000.log\n",
    ".venv/bin/kafkawire find": "v1",
    ".venv/bin/kafkawire consume": '"value": "100000"',
    ".venv/bin/kafkawire configs explain": "retention.ms (topic)",
}
TIMED_OUT = 124


def blocks() -> list[list[str]]:
    return [found.splitlines() for found in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))]


def test_the_readme_works(installed: Installed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_kcat()
    need_command("curl", "make system-deps")
    start, check, tour = blocks()
    assert (start, check) == (["make run"], ["make test"])  # the latter runs this test
    with Terminal(installed.directory, tmp_path / "terminal.log") as terminal:
        installed_s = time.perf_counter()
        terminal.type("make run &")  # it does not come back: the tour is for another terminal
        terminal.wait_for("kafkawire ready")
        follow(terminal, tour[:1])
        seconds = time.perf_counter() - installed_s
        with capsys.disabled():
            whole_s = installed.seconds + seconds
            print(f"\nfirst record read back: {seconds:.1f} s installed, {whole_s:.1f} s from a clone")
        follow(terminal, tour[1:])


def follow(terminal: Terminal, lines: list[str]) -> None:
    for line in lines:
        begin = terminal.size()
        code, said = terminal.type(line)
        assert code == (TIMED_OUT if line.startswith("timeout ") else 0), f"{line}\n{said}"
        for command, expected in SHOWN.items():
            if line.startswith(command):
                assert expected in said, f"{line}\n{said}"
        if line.startswith("kill -9"):  # the next line waits for ten seconds, which may be too short
            terminal.wait_for("kafkawire ready", begin)


def test_every_command_with_an_expected_output_is_in_the_readme() -> None:
    tour = blocks()[-1]
    assert [command for command in SHOWN if not any(line.startswith(command) for line in tour)] == []
