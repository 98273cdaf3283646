"""`make cluster` in a copy of the tree: three brokers that clients find by any of them, one of which is killed."""

from __future__ import annotations

import re
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compat_tests.features.readme.terminal import Terminal
from compat_tests.features.readme.three_brokers import BROKERS, RECORDS
from compat_tests.harness.requirements import need_command, need_zookeeper_jars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from compat_tests.features.readme.conftest import Installed

READY = "cluster ready: "
CHECK_TIMEOUT_S = 200.0  # two attempts of the slowest kind
ALL = RECORDS * len(BROKERS)
AGAIN = re.compile(r"broker 2 ended by itself with -9 .*; to start it again: (.*)$", re.MULTILINE)
LOG_OF_LIBRDKAFKA = re.compile(r"%[4-7]\|")  # log lines with time and thread
STOPPED = [f"{name} stopped" for name in ("broker 3", "broker 2", "broker 1", "zookeeper")]


def give_zookeeper(tree: Path) -> None:
    """Copy the jars that Maven would fetch: the terminal has no way to other machines."""
    jars = tree / ".cache" / "jars" / "zookeeper"
    if not jars.exists():
        shutil.copytree(need_zookeeper_jars(), jars)
    (jars / ".done").touch()


@contextmanager
def cluster(terminal: Terminal) -> Iterator[None]:
    """Run `make cluster`, and end it with Ctrl-C: no process of it runs after that. A shell's job in the background
    ignores SIGINT, and has no process group of its own: both are undone."""
    begin = terminal.size()
    terminal.type("env --default-signal=INT setsid make cluster & made=$!")
    terminal.wait_for(READY, begin)
    yield
    terminal.type("kill -INT -- -$made; wait $made")
    told = [line for line in terminal.shown(begin).splitlines() if line.endswith(" stopped")]
    assert told == [line for line in STOPPED if line in told]
    assert len(told) == len(STOPPED) - len(AGAIN.findall(terminal.shown(begin)))
    _, left = terminal.type("pgrep -a -f 'kafkawir[e]|zookeepe[r]'")
    assert left == ""


def test_make_cluster_runs_three_brokers_until_it_is_stopped(installed: Installed, tmp_path: Path) -> None:
    need_command("pgrep", "make system-deps")
    give_zookeeper(installed.directory)
    with Terminal(installed.directory, tmp_path / "terminal.log") as terminal:
        with cluster(terminal):
            check(terminal, "produce", f"{RECORDS} acknowledged")
            check(terminal, "consume", f"{ALL} read, in sync [3]")
            kill_and_start_again(terminal)
        with cluster(terminal):
            check(terminal, "consume", f"{ALL} read, in sync [3]")
            code, said = terminal.type("make cluster")
            assert code != 0
            assert "zookeeper cannot have 127.0.0.1:2181: Address already in use\n" in said


def check(terminal: Terminal, what: str, expected: str, brokers: Sequence[str] = BROKERS) -> None:
    """Check each broker, and ask again until the ISR is as expected."""
    named = " ".join(brokers) if what == "consume" else ""
    deadline_s = time.monotonic() + CHECK_TIMEOUT_S
    while True:
        code, said = terminal.type(f"{sys.executable} -m compat_tests.features.readme.three_brokers {what} {named}")
        told = code, [line for line in said.strip().splitlines() if not LOG_OF_LIBRDKAFKA.match(line)]
        if told == (0, [f"by {broker}: {expected}" for broker in brokers]):
            return
        assert what == "consume", told
        assert time.monotonic() < deadline_s, told


def kill_and_start_again(terminal: Terminal) -> None:
    """Kill a broker and start it again with the printed command line. The two others have all of its partitions
    meanwhile."""
    begin = terminal.size()
    terminal.type("kill -9 $(pgrep -f '[b]roker.id=2')")
    again = AGAIN.search(terminal.wait_for("to start it again: ", begin))
    assert again is not None
    check(terminal, "consume", f"{ALL} read, in sync [2]", [one for one in BROKERS if one != BROKERS[1]])
    terminal.type(f"{again.group(1)} & alone=$!")
    terminal.wait_for("kafkawire ready: PLAINTEXT://127.0.0.1:9093", begin)
    check(terminal, "consume", f"{ALL} read, in sync [3]")
    code, _ = terminal.type("kill $alone; wait $alone")
    assert code == 0
