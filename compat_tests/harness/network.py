"""A switch and hosts at it, each a network namespace of its own: connections between hosts can be cut at any time.

Needs root, `ip` and `nsenter`. The network has no way to the outside: addresses and ports are free to choose.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest

from compat_tests.harness.requirements import need_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

CLONE_NEWNET: Final = 0x40000000
NAMESPACES: Final = Path("/run/netns")
SUBNET: Final = "10.77.0"
BURST_BYTES: Final = 128 * 1024  # a segment that the network card would divide has up to 64 KiB
QUEUE_BYTES: Final = 512 * 1024
NOBODY: Final = "02:00:00:00:00:01"  # the hardware address of no host: packets to it are lost
_libc = ctypes.CDLL(None, use_errno=True)


def need_network_namespaces() -> None:
    """Skip the test if network namespaces are not available."""
    need_command("ip", "make system-deps")
    need_command("nsenter", "install util-linux")
    if os.geteuid() != 0:
        pytest.skip("needs network namespaces of its own: root")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _tc(*arguments: str) -> None:
    _run("tc", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@dataclass(eq=False)
class Host:
    """A host at the switch."""

    namespace: str
    address: str
    port: str = ""  # at the switch
    hub: str = ""  # the switch's namespace
    _unreached: set[str] = field(default_factory=set)

    def command(self, command: list[str]) -> list[str]:
        """The command line that runs a command there, with the same mounts as here, also after an unmount."""
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", *command]

    def limit_bandwidth(self, bytes_per_s: int) -> None:
        """Limit the bandwidth in each direction."""
        rate = f"root tbf rate {8 * bytes_per_s}bit burst {BURST_BYTES} limit {QUEUE_BYTES}"
        for namespace, device in self._ends:
            _tc("-n", namespace, *f"qdisc replace dev {device} {rate}".split())

    def unlimit_bandwidth(self) -> None:
        for namespace, device in self._ends:
            _tc("-n", namespace, *f"qdisc del dev {device} root".split())

    @property
    def _ends(self) -> list[tuple[str, str]]:
        """The ends of its link: namespaces and devices."""
        return [(self.namespace, "uplink"), (self.hub, self.port)]

    def lose(self, other: Host) -> None:
        """Lose all packets to the other host from now on; packets from it still arrive."""
        if other.address not in self._unreached:
            self._unreached.add(other.address)
            nobody = f"neigh replace {other.address} lladdr {NOBODY} dev uplink nud permanent"
            _ip("-n", self.namespace, *nobody.split())

    def find(self, other: Host) -> None:
        """Undo `lose`."""
        if other.address in self._unreached:
            self._unreached.discard(other.address)
            _ip("-n", self.namespace, *f"neigh del {other.address} dev uplink".split())


class Network:
    """A network with the switch in a host of its own, `hub`, in which clients may run."""

    def __init__(self) -> None:
        self._prefix = f"kw{os.getpid()}-"
        self.hub = Host(f"{self._prefix}hub", f"{SUBNET}.254")
        self.hosts: list[Host] = []

    def __enter__(self) -> Self:
        need_network_namespaces()
        _ip("netns", "add", self.hub.namespace)
        for words in (
            "link set lo up",
            "link add switch type bridge",
            f"address add {self.hub.address}/24 dev switch",
            "link set switch up",
        ):
            _ip("-n", self.hub.namespace, *words.split())
        return self

    def __exit__(self, *exception: object) -> None:
        for host in (*self.hosts, self.hub):
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)

    def add(self) -> Host:
        """Add a host that all others reach."""
        number = len(self.hosts) + 1
        port = f"port{number}"
        host = Host(f"{self._prefix}{number}", f"{SUBNET}.{number}", port, self.hub.namespace)
        self.hosts.append(host)
        _ip("netns", "add", host.namespace)
        _ip(*f"-n {self.hub.namespace} link add {port} type veth peer name uplink netns {host.namespace}".split())
        _ip(*f"-n {self.hub.namespace} link set {port} master switch up".split())
        for words in ("link set lo up", f"address add {host.address}/24 dev uplink", "link set uplink up"):
            _ip("-n", host.namespace, *words.split())
        return host

    def part(self, some: Collection[Host], others: Collection[Host]) -> None:
        """Cut all hosts of one side off from those of the other."""
        for one in some:
            for other in others:
                one.lose(other)
                other.lose(one)

    def heal(self) -> None:
        """Undo all cuts: each host reaches each other one."""
        for one in self.hosts:
            for other in self.hosts:
                one.find(other)


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Put this thread into the network of a host, with the threads and processes that it starts meanwhile."""
    with Path(f"/proc/self/task/{threading.get_native_id()}/ns/net").open("rb") as home:
        _enter(NAMESPACES / host.namespace)
        try:
            yield
        finally:
            _set(home.fileno())


def _enter(path: Path) -> None:
    with path.open("rb") as there:
        _set(there.fileno())


def _set(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
