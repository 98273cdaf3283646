"""A ZooKeeper ensemble from its jars: servers as processes of their own, each of which can be killed or paused."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.broker import free_port
from compat_tests.harness.requirements import need_zookeeper_jars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from compat_tests.harness.network import Host

READY_WITHIN_S: Final = 60
TICK_MS: Final = 500  # sessions last 2 to 20 of them
LOG_TAIL_LINES: Final = 30


class ZooKeeperServer:
    """A server of an ensemble. Its number is its id, from 1. `host`: where it runs, if not here."""

    def __init__(self, directory: Path, number: int, client_port: int, host: Host | None = None) -> None:
        self.number = number
        self.port = client_port
        self.ip = "127.0.0.1" if host is None else host.address
        self.host = host
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def prepare(self, members: Mapping[int, str]) -> None:
        """Write the server's configuration. `members`: the value of `server.N` for each server."""
        data = self._directory / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(self.number))
        lines = {
            "tickTime": str(TICK_MS),
            "initLimit": "20",
            "syncLimit": "10",
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": self.ip,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr",
            "forceSync": "no",  # no test cuts the power
            **{f"server.{number}": addresses for number, addresses in members.items()},
        }
        (self._directory / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def launch(self) -> None:
        """Start the server and do not wait."""
        assert self._process is None, "the server is running already"
        jars = need_zookeeper_jars()
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        java = ["java", "-Xmx96m", *QUICK_JVM, "-cp", f"{jars}/*", main, "zoo.cfg"]
        with self._log_path.open("ab") as log:
            command = java if self.host is None else self.host.command(java)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def mode(self) -> str:
        """`leader`, `follower` or `standalone`; empty while it does not serve."""
        return next((line[6:] for line in self.ask("srvr").splitlines() if line.startswith("Mode: ")), "")

    def ask(self, word: str) -> str:
        """The answer to one of ZooKeeper's four-letter words; empty while the server does not serve."""
        answer = b""
        with suppress(OSError), socket.create_connection((self.ip, self.port), 5) as connection:
            connection.sendall(word.encode())
            while part := connection.recv(4096):
                answer += part
        return answer.decode()

    def kill(self) -> None:
        """Send SIGKILL; do nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the server by a signal, with its connections open, for the block."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    @property
    def _log_path(self) -> Path:
        return self._directory / "server.log"


class ZooKeeperEnsemble:
    """Three servers, or as many as are asked for; at these hosts, if there are any."""

    def __init__(self, directory: Path, size: int = 3, hosts: Sequence[Host] = ()) -> None:
        self._modes = ["follower"] * (size - 1) + ["leader" if size > 1 else "standalone"]
        self.servers = [
            ZooKeeperServer(directory / str(number), number, free_port(), host)
            for number, host in enumerate(hosts or [None] * size, 1)
        ]
        members = {one.number: f"{one.ip}:{free_port()}:{free_port()}" for one in self.servers}
        for server in self.servers:
            server.prepare(members)

    @property
    def connect(self) -> str:
        """All addresses, as in zookeeper.connect."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start the servers that do not run, and return when all serve and there is a leader."""
        for server in self.servers:
            if not server.is_running:
                server.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until all servers serve below one leader; a leader that was paused needs time to see that it no longer
        leads."""
        deadline = time.monotonic() + READY_WITHIN_S
        while sorted(server.mode() for server in self.servers) != self._modes:
            assert all(server.is_alive for server in self.servers), self.log_tail()
            assert time.monotonic() < deadline, self.log_tail()
            time.sleep(0.05)

    def log_tail(self) -> str:
        return "\n".join(server.log_tail() for server in self.servers)

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


@contextmanager
def zookeeper_ensemble(directory: Path, size: int = 3, hosts: Sequence[Host] = ()) -> Iterator[ZooKeeperEnsemble]:
    """A running ensemble, which is killed at the end."""
    ensemble = ZooKeeperEnsemble(directory, size, hosts)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.kill()
