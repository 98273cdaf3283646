"""`make cluster`: a ZooKeeper server and three brokers as processes of this machine, in the foreground until Ctrl-C.

Their data and logs are in ./data-cluster, so that the next start goes on with them. Each process runs in a session of
its own: a Ctrl-C reaches this script alone, which stops the brokers one after the other and then ZooKeeper.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

JARS = Path(".cache/jars/zookeeper")
KAFKAWIRE = Path(".venv/bin/kafkawire")  # relative to the directory of the start, as a user types it
HOST = "127.0.0.1"
ZOOKEEPER_PORT = 2181
BROKERS = {1: (9092, 9644), 2: (9093, 9645), 3: (9094, 9646)}  # ports of Kafka's protocol and of HTTP, by id
READY = "kafkawire ready: "
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0  # a broker has 30 s to leave in order
POLL_EVERY_S = 0.1
ZOOKEEPER_IN_ORDER = 128 + signal.SIGTERM  # a JVM's exit code


class CannotRun(Exception):
    """The cluster cannot run; the text is a line for the user."""


class Process:
    """A process of the cluster. `ports` are those of HOST that it listens on; its output is appended to `log`."""

    in_order = 0

    def __init__(self, name: str, command: Sequence[str], ports: Sequence[int], log: Path) -> None:
        self.name = name
        self.command = list(command)
        self.ports = ports
        self.log = log
        self._log_begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        """Whether it was started and has not been seen to end."""
        return self._process is not None

    def start(self) -> None:
        """Start the process and do not wait until it serves."""
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def ready(self) -> str:
        """The address where it serves, as it prints it; empty while it does not."""
        raise NotImplementedError

    def output_lines(self) -> list[str]:
        """The lines of its output since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace").splitlines()

    def ended(self) -> int | None:
        """The exit code of a process that has ended, only once; None while it runs, and later."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._process = None
        return code

    def stop(self) -> int | None:
        """Ask the process to stop, and wait. Returns its exit code; None if it does not run, or did not stop in
        time."""
        if self._process is None:
            return None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        return self.ended()

    def kill(self) -> None:
        """Kill the process; do nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class ZooKeeper(Process):
    """A ZooKeeper server, with all its data in a directory below `home`."""

    in_order = ZOOKEEPER_IN_ORDER

    def __init__(self, home: Path) -> None:
        config = home / "zookeeper.cfg"
        java = ["java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
        command = [*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        super().__init__("zookeeper", command, (ZOOKEEPER_PORT,), home / "zookeeper.log")
        settings = {
            "dataDir": home / "zookeeper",
            "clientPort": ZOOKEEPER_PORT,
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            "autopurge.purgeInterval": 24,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")

    def ready(self) -> str:
        """The address of the server, once it answers a four-letter word."""
        answer = b""
        with suppress(OSError), socket.create_connection((HOST, ZOOKEEPER_PORT), 5) as connection:
            connection.sendall(b"srvr")
            while part := connection.recv(4096):
                answer += part
        return f"{HOST}:{ZOOKEEPER_PORT}" if b"Mode: " in answer else ""


class Broker(Process):
    """A broker, with its log dir below `home`."""

    def __init__(self, home: Path, broker_id: int) -> None:
        kafka, http = ports = BROKERS[broker_id]
        settings = {
            "zookeeper.connect": f"{HOST}:{ZOOKEEPER_PORT}",
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{HOST}:{kafka}",
            "http.listeners": f"http://{HOST}:{http}",
            "log.dirs": home / f"broker-{broker_id}",
            "inter.broker.secret.file": secret_file(home),
            "default.replication.factor": len(BROKERS),
            "min.insync.replicas": len(BROKERS) - 1,
        }
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        log = home / f"broker-{broker_id}.log"
        super().__init__(f"broker {broker_id}", [str(KAFKAWIRE), "serve", *given], ports, log)

    def ready(self) -> str:
        """The address in the line that says "ready"."""
        return next((line.removeprefix(READY) for line in self.output_lines() if line.startswith(READY)), "")


def secret_file(home: Path) -> Path:
    """The file with the secret of the brokers, made once, readable for this user only."""
    file = home / "secret"
    with suppress(FileExistsError):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as secret:
            secret.write(secrets.token_urlsafe(32) + "\n")
    return file


def check_machine() -> None:
    """Check that ZooKeeper can be run here. Raises CannotRun."""
    if shutil.which("java") is None:
        raise CannotRun("there is no java on the PATH, and ZooKeeper needs one")
    if not (JARS / ".done").exists():
        raise CannotRun(f"ZooKeeper is not in {JARS}: `make zookeeper-jars` fetches it with Maven")


def check_ports(processes: Sequence[Process]) -> None:
    """Check that all ports are free. Raises CannotRun."""
    for process in processes:
        for port in process.ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise CannotRun(f"{process.name} cannot have {HOST}:{port}: {error.strerror}") from error


def print_line(text: str) -> None:
    print(text, flush=True)


def start(processes: Sequence[Process]) -> None:
    """Start all of them at once, and return when each serves. Raises CannotRun."""
    for process in processes:
        process.start()
    for process in processes:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not (where := process.ready()):
            if process.ended() is not None:
                last = next(reversed(process.output_lines()), "it said nothing")
                raise CannotRun(f"{process.name} did not start: {last} ({process.log})")
            if time.monotonic() > deadline_s:
                raise CannotRun(f"{process.name} does not serve after {READY_TIMEOUT_S:.0f} s ({process.log})")
            time.sleep(POLL_EVERY_S)
        print_line(f"{process.name} ready: {where}")


def watch(processes: Sequence[Process]) -> None:
    """Report each process that ends by itself, until none is left; the others go on."""
    while any(process.is_started for process in processes):
        for process in processes:
            code = process.ended()
            if code is not None:
                again = shlex.join(process.command)
                print_line(f"{process.name} ended by itself with {code} ({process.log}); to start it again: {again}")
        time.sleep(POLL_EVERY_S)


def stop(processes: Sequence[Process]) -> None:
    """Stop the processes, the last one first; a second Ctrl-C kills the rest at once."""
    try:
        for process in reversed(processes):
            if process.is_started:
                code = process.stop()
                print_line(f"{process.name} {'stopped' if code == process.in_order else f'ended with {code}'}")
    except KeyboardInterrupt:
        print_line("the processes that are left are killed")
    finally:
        for process in processes:
            process.kill()


def run(home: Path) -> None:
    """Run the cluster until no process is left, or a KeyboardInterrupt. Raises CannotRun."""
    check_machine()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    zookeeper, brokers = ZooKeeper(home), [Broker(home, broker_id) for broker_id in BROKERS]
    everything = [zookeeper, *brokers]
    check_ports(everything)
    try:
        start([zookeeper])
        start(brokers)
        print_line(
            f"cluster ready: {','.join(f'{HOST}:{kafka}' for kafka, _ in BROKERS.values())}; stop it with Ctrl-C"
        )
        watch(everything)
    finally:
        stop(everything)


def main() -> int:
    """Run the cluster. Exits with 0 after a signal to stop."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # a shell's background jobs ignore SIGINT
    try:
        run(Path("data-cluster"))
    except KeyboardInterrupt:
        return 0
    except CannotRun as error:
        print(f"make cluster: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
