"""A broker as a separate process: start, wait until it is ready, stop, kill, start again on the same data.

The differences between Apache Kafka and kafkawire (the command line, the line that says "ready") are left to the two
subclasses; a test gets a `Broker` and cannot tell which one it is. A broker that died unseen, did not leave in order or
logged a bug of its own fails the test, or the run, at whose end it is stopped.
"""

from __future__ import annotations

import abc
import random
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from pathlib import Path

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40  # a broker has 30 s to leave in order
LOG_TAIL_LINES = 30
BUG_CHARACTERS = 3000
IN_ORDER = (0, 128 + signal.SIGTERM)  # exit codes of brokers after a SIGTERM; the second is a JVM's


_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port without a listener, below the range that the kernel takes outgoing ports from.

    The caller may listen on it as late and as often as it likes: a UDP socket with the same number is held until this
    process ends, so that no other caller gets the port, in other processes neither.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(20_000, 32_000)
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                reservation.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                reservation.close()
                continue
        _reserved.append(reservation)
        return port
    raise RuntimeError("no free port between 20000 and 32000")


def someone_listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), READY_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return False
    return True


def _addresses(**ports: int) -> str:
    return ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items())


class BrokerFailedError(Exception):
    """The broker did not start, or did not stop in time; carries the end of its log."""


class Broker(abc.ABC):
    """A broker on 127.0.0.1 with a directory of its own; `overrides` are Kafka's configuration keys."""

    name: str
    ready_line: re.Pattern[str]
    in_order: tuple[int, ...] = (*IN_ORDER, -signal.SIGTERM)  # the last: of make, which passes it on
    bug_line: re.Pattern[str] | None = None  # in its log, if it found a bug of its own

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.overrides = dict(overrides or {})
        self.brokers: Mapping[int, Broker] = {1: self}  # all brokers of the cluster, by id
        self._behind: tuple[int, int] | None = None  # an own port and the one advertised to its clients
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def leader_id(self, topic: str, partition: int = 0) -> int:
        return min(self.brokers)

    def leader_of(self, topic: str, partition: int = 0) -> Broker:
        """The leader of a partition, which also has its files."""
        return self.brokers[self.leader_id(topic, partition)]

    def coordinator_of(self, transactional_id: str) -> Broker:
        """The coordinator of a transactional id."""
        return self

    def listen_behind(self, proxy_port: int) -> int:
        """Listen on one more port from the next start on; clients of that port get the proxy's port as the advertised
        one. Returns the port."""
        self._behind = (free_port(), proxy_port)
        return self._behind[0]

    def listeners(self, **others: int) -> dict[str, str]:
        """The keys of the listeners; `others` are listeners that are not advertised, with their ports."""
        if self._behind is None:
            return {"listeners": _addresses(PLAINTEXT=self.port, **others)}
        port, advertised = self._behind
        names = ["PLAINTEXT", "PROXIED", *others]
        return {
            "listeners": _addresses(PLAINTEXT=self.port, PROXIED=port, **others),
            "advertised.listeners": _addresses(PLAINTEXT=self.port, PROXIED=advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        }

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command line; called before each start."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Prepare the directory; called once, before the first start."""

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts the broker and returns when it serves; its output is appended to `log_path`."""
        self._wait_ready(self.launch(), timeout_s)

    def launch(self) -> int:
        """Start the broker and do not wait. Returns the offset at which its output begins in `log_path`."""
        assert self._process is None, "the broker is running already"
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
        if not self.log_path.exists():
            self.log_path.touch()
            self.prepare()
        offset = self.log_path.stat().st_size
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.directory)
        return offset

    def _wait_ready(self, log_offset: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.ready_line.search(self._log_from(log_offset)):
            process = self._process
            assert process is not None
            if process.poll() is not None:
                self._process = None
                raise BrokerFailedError(f"{self.name} exited with {process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailedError(f"{self.name} not ready after {timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def _log_from(self, offset: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")

    def log_tail(self) -> str:
        return "\n".join(self._log_from(0).splitlines()[-LOG_TAIL_LINES:])

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask the broker to stop, as an operator would. Returns the exit code."""
        process = self._process
        assert process is not None, "the broker is not running"
        process.send_signal(number)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailedError(f"{self.name} did not stop in {timeout_s} s:\n{self.log_tail()}") from None
        self._process = None
        return code

    def leaves_within(self, seconds: float) -> bool:
        """Whether the broker stops by itself with an error within so many seconds."""
        process = self._process
        assert process is not None, "the broker is not running"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        return code != 0

    def forget(self) -> None:
        """Forget a process that has left by itself, so that another one may be started."""
        assert not self.is_alive, "the broker is running"
        self._process = None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        process = self._process
        assert process is not None, "the broker is not running"
        process.kill()
        process.wait(STOP_TIMEOUT_S)
        self._process = None

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._process is not None:
            was_alive = self.is_alive
            code = self.stop()
            if kind is None:
                assert was_alive, f"{self.name} left by itself with {code}:\n{self.log_tail()}"
                assert code in self.in_order, f"{self.name} stopped with {code}:\n{self.log_tail()}"
        if kind is None and self.bug_line is not None:
            bug = self.bug_line.search(self._log_from(0))
            assert bug is None, f"{self.name} met a bug:\n{bug.string[bug.start() :][:BUG_CHARACTERS]}"
