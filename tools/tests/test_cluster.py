"""Tests of `make cluster`: its requirements, its output, and the order of its end."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from kafkawire.config.broker_config import load
from kafkawire.config.properties import gather
from tools.cluster import Broker, CannotRun, Process, check_machine, check_ports, secret_file, start, stop, watch

if TYPE_CHECKING:
    from pathlib import Path


class Speaker(Process):
    """A process that runs a line of Python, and is ready when it prints so."""

    in_order = -15  # of a program that does not handle SIGTERM

    def __init__(self, directory: Path, name: str, line: str) -> None:
        super().__init__(name, [sys.executable, "-c", line], (), directory / f"{name}.log")

    def ready(self) -> str:
        return next((line for line in self.output_lines() if "ready" in line), "")


STAYS = "import signal; print('ready', flush=True); signal.pause()"


def test_the_secret_is_made_once_and_for_one_user(tmp_path: Path) -> None:
    file = secret_file(tmp_path)
    made = file.read_text()
    assert (file.stat().st_mode & 0o777, len(made) > 40) == (0o600, True)
    assert secret_file(tmp_path).read_text() == made


def test_the_command_of_a_broker_is_a_valid_config_without_warnings(tmp_path: Path) -> None:
    _, serve, *given = Broker(tmp_path, 2).command
    config, warnings = load(gather(None, {}, given[1::2]).values)
    assert (serve, warnings, {*given[::2]}) == ("serve", [], {"--set"})
    assert (config.node_id, config.is_in_cluster, config.log_dirs) == (2, True, (tmp_path / "broker-2",))


def test_a_process_whose_port_is_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CannotRun, match=rf"^broker 7 cannot have 127\.0\.0\.1:{port}: Address already in use$"):
            check_ports([Process("broker 7", [], [port], tmp_path / "log")])


def test_a_machine_without_java_or_without_zookeeper_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotRun, match="no java on the PATH"):
        check_machine()
    (tmp_path / "java").touch(mode=0o755)
    with pytest.raises(CannotRun, match="make zookeeper-jars"):
        check_machine()


def test_a_process_that_does_not_start_is_named_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"^a did not start: because .*a\.log"):
        start([Speaker(tmp_path, "a", "print('first'); print('because')")])


def test_each_ended_process_is_printed_with_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goes = [Speaker(tmp_path, name, f"print('ready'); raise SystemExit({code})") for name, code in (("a", 3), ("b", 4))]
    for each in goes:
        each.start()
    watch(goes)
    told = capsys.readouterr().out
    assert sorted(line.partition(" (")[0] for line in told.splitlines()) == [
        "a ended by itself with 3",
        "b ended by itself with 4",
    ]
    assert f"to start it again: {sys.executable} -c 'print(" in told


def test_all_end_in_the_reverse_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stay = [Speaker(tmp_path, name, STAYS) for name in "ab"]
    start(stay)
    stop(stay)
    assert capsys.readouterr().out.splitlines() == ["a ready: ready", "b ready: ready", "b stopped", "a stopped"]


def test_a_ready_line_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ready\n")
    with pytest.raises(CannotRun):
        start([Speaker(tmp_path, "a", "")])
