"""The metadata store of a cluster: a ZooKeeper ensemble, 3.6 or newer, by kazoo (see `zookeeper_session`).

Import this module only where a store is opened: a broker that stands alone pays nothing for it. An answer of ZooKeeper
that is none of the store's errors becomes ConnectionLost: the outcome of the request is unknown.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.hosts import collect_hosts
from kazoo.protocol import serialization as requests
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from coordinator.errors import CannotStart
from coordinator.metadata_store.statistics import SessionStatistics
from coordinator.metadata_store.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    SessionLost,
    StoreError,
    Wake,
    check_size,
    parent_of,
)
from coordinator.metadata_store.wakes import Wakes, children_of
from coordinator.metadata_store.zookeeper_connection import ReceiveLimit
from coordinator.metadata_store.zookeeper_session import ReadMany, Servers, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READS_PER_REQUEST: Final = 500  # of partition states, at most 4 KiB each
RETRY_PAUSE_S: Final = 0.1
PROBE: Final = "/probe"  # made and deleted in one multi, so that it is never visible
EPHEMERAL: Final = 1  # a flag of creation
BYSTANDERS: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)  # errors of the other operations


class _TooOld(StoreError):
    """The ensemble does not know the type of the request."""


STORE_ERRORS: Final[Mapping[type[Exception], type[StoreError]]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.NoAuthError: NotAllowed,
    kazoo_errors.AuthFailedError: NotAllowed,
    kazoo_errors.InvalidACLError: NotAllowed,
    kazoo_errors.SessionExpiredError: SessionLost,
    kazoo_errors.ConnectionClosedError: SessionLost,
    kazoo_errors.UnimplementedError: _TooOld,
}


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Settings of the connection. `connect`: host:port,host:port/chroot, as Kafka's zookeeper.connect; `credentials`:
    user:password, for digest.

    The defaults are those of zookeeper.session.timeout.ms and zookeeper.connection.timeout.ms: without the latter, the
    former counts. With credentials all nodes are made for them alone.
    """

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int | None = None
    credentials: str | None = field(default=None, repr=False)

    @property
    def hosts(self) -> str:
        """The servers alone."""
        return self.connect.partition("/")[0]

    @property
    def chroot(self) -> str:
        """The path where the tree begins, '' at the root. Raises CannotStart."""
        chroot = "".join(self.connect.partition("/")[1:])
        names = chroot.split("/")[1:]
        if any(name in {"", ".", ".."} or "\0" in name for name in names):
            raise CannotStart(f"zookeeper.connect={self.connect}: {chroot} is no path of a node")
        return chroot

    @property
    def connect_within_s(self) -> float:
        """How long a server is looked for, in seconds."""
        return (self.connection_timeout_ms or self.session_timeout_ms) / 1000

    def servers(self) -> Servers:
        """The servers, and how to talk to them. Raises CannotStart for malformed settings."""
        try:
            count = len(collect_hosts(self.hosts)[0])
        except ValueError:
            raise CannotStart(f"zookeeper.connect={self.connect}: {self.hosts} is no list of host:port") from None
        if self.credentials is not None and not all(self.credentials.partition(":")):
            raise CannotStart("the credentials for ZooKeeper are not of the form user:password")
        return Servers(self.hosts, count, self.session_timeout_ms, self.credentials)


async def open_zookeeper(settings: ZooKeeperSettings, *, makes_chroot: bool = True) -> ZooKeeperStore:
    """Connects, and makes the chroot if there is none, or raises NoNode. Raises CannotStart."""
    store = ZooKeeperStore(settings)
    try:
        await _begin_in_time(store, settings, makes_chroot=makes_chroot)
    except BaseException:
        await store.close()
        raise
    return store


async def _begin_in_time(store: ZooKeeperStore, settings: ZooKeeperSettings, *, makes_chroot: bool) -> None:
    place = f"ZooKeeper ({settings.connect})"
    with trio.move_on_after(settings.connect_within_s):
        while True:
            try:
                await store.renew()
                await store.prepare(makes_chroot=makes_chroot)
            except (ConnectionLost, SessionLost):
                await trio.sleep(RETRY_PAUSE_S)
            except NotAllowed as error:
                with_what = "with these credentials" if settings.credentials else "without credentials"
                path = error.path or settings.chroot or "/"
                raise CannotStart(f"{place} refuses to read and write {path} {with_what}") from None
            except _TooOld:
                raise CannotStart(f"{place} is older than 3.6, the first that reads many nodes at once") from None
            else:
                return
    within_ms = round(settings.connect_within_s * 1000)
    raise CannotStart(f"no ZooKeeper server of {settings.hosts} answered within {within_ms} ms")


class ZooKeeperStore:
    """A `MetadataStore`."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._settings = settings
        self._root = settings.chroot
        self._servers = settings.servers()
        self._acl = CREATOR_ALL_ACL if settings.credentials else OPEN_ACL_UNSAFE
        self._wakes = Wakes()
        self._session: Session | None = None
        self._receive_limit = ReceiveLimit()
        self.session = SessionStatistics(lambda: self._receive_limit.silent_s)
        self._is_closed = False

    async def prepare(self, *, makes_chroot: bool) -> None:
        """Make the chroot if there is none, and check that the ensemble answers all requests that come later."""
        if makes_chroot:
            await self._make_root()
        await self.children("")
        await self.read_many([""])
        await self.multi([Create(PROBE, b""), Delete(PROBE)])

    async def get(self, path: str) -> Node:
        """See `MetadataStore`."""
        (node,) = await self.read_many([path])
        if node is None:
            raise NoNode(path)
        return node

    async def exists(self, path: str, wake: Wake | None = None) -> bool:
        """See `MetadataStore`."""
        self._wakes.arm(path, wake)  # before the request: the answer and the next event may come together
        return await self._ask(requests.Exists(self._absolute(path), self._watcher(wake)), path) is not None

    async def children(self, path: str, wake: Wake | None = None) -> list[str]:
        """See `MetadataStore`."""
        self._wakes.arm(children_of(path), wake)
        return sorted(await self._ask(requests.GetChildren(self._absolute(path), self._watcher(wake)), path))

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """See `MetadataStore`."""
        found = await self._read_parts(paths, requests.GetChildren)
        return [[] if names is None else sorted(names) for names in found]

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """See `MetadataStore`."""
        return await self._read_parts(paths, requests.GetData)

    async def read_children(self, path: str) -> Mapping[str, Node]:
        """See `MetadataStore`."""
        names = await self.children(path)
        nodes = await self.read_many([f"{path}/{name}" for name in names])
        return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}

    async def multi(self, operations: Sequence[Operation]) -> None:
        """See `MetadataStore`."""
        check_size(operations)
        results = await self._ask(requests.Transaction([self._request(operation) for operation in operations]))
        failures = [
            (operation, result)
            for operation, result in zip(operations, results, strict=True)
            if isinstance(result, Exception)
        ]
        for operation, error in failures:
            if not isinstance(error, BYSTANDERS):
                raise _store_error(error, _failed_path(operation, error))
        if failures:
            raise ConnectionLost

    async def sync(self) -> None:
        """See `MetadataStore`."""
        await self._ask(requests.Sync(self._absolute("")))

    async def renew(self) -> None:
        """See `MetadataStore`."""
        if self._is_closed:
            raise SessionLost
        await self._end()
        session = Session(self._servers, self._touched, self._receive_limit, self.session)
        try:
            await session.begin(self._settings.connect_within_s)
        except BaseException:
            await session.end()
            raise
        self._session = session

    async def close(self) -> None:
        """See `MetadataStore`."""
        self._is_closed = True
        self._wakes.wake_all()
        await self._end()

    async def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.end()

    async def _make_root(self) -> None:
        names = self._root.split("/")
        for path in ("/".join(names[:depth]) for depth in range(2, len(names) + 1)):
            if await self._ask(requests.Exists(path, None), path) is None:
                with suppress(NodeExists):
                    await self._ask(requests.Create(path, b"", self._acl, 0), path)

    async def _read_parts(self, paths: Sequence[str], kind: type[requests.GetData | requests.GetChildren]) -> list[Any]:
        """The answer for each path, None for a node that does not exist."""
        parts = [paths[first : first + READS_PER_REQUEST] for first in range(0, len(paths), READS_PER_REQUEST)]
        return [one for part in parts for one in await self._read_part(part, kind)]

    async def _read_part(self, paths: Sequence[str], kind: type[requests.GetData | requests.GetChildren]) -> list[Any]:
        found: list[Any] = []
        answers = await self._ask(ReadMany([self._absolute(path) for path in paths], kind))
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, kazoo_errors.NoNodeError):
                found.append(None)
            elif isinstance(answer, Exception):
                raise _store_error(answer, path)
            else:
                found.append(answer)
        return found

    async def _ask(self, request: object, path: str = "") -> Any:
        if self._session is None:
            await trio.lowlevel.checkpoint()
            raise SessionLost
        try:
            return await self._session.ask(request)
        except kazoo_errors.KazooException as error:
            raise _store_error(error, path) from error

    def _request(self, operation: Operation) -> object:
        path = self._absolute(operation.path)
        match operation:
            case Create():
                return requests.Create(path, operation.value, self._acl, EPHEMERAL if operation.ephemeral else 0)
            case Delete():
                return requests.Delete(path, operation.version)
            case Check():
                return requests.CheckVersion(path, operation.version)
            case _:
                return requests.SetData(path, operation.value, operation.version)

    def _absolute(self, path: str) -> str:
        return self._root + path or "/"

    def _watcher(self, wake: Wake | None) -> object:
        """The session's one callback for watches: with the same callback, kazoo keeps one watch for each path."""
        return None if wake is None or self._session is None else self._session.on_watch

    def _touched(self, path: str | None) -> None:
        if path is None:
            self._wakes.wake_all()
        else:
            path = path.removeprefix(self._root).removesuffix("/")
            self._wakes.wake({path, children_of(path)})


def _store_error(error: Exception, path: str) -> StoreError:
    return next(
        (store_error(path) for each, store_error in STORE_ERRORS.items() if isinstance(error, each)),
        ConnectionLost(path),
    )


def _failed_path(operation: Operation, error: Exception) -> str:
    """The path of the node that an operation of a multi failed for."""
    is_parent = isinstance(operation, Create) and isinstance(
        error, kazoo_errors.NoNodeError | kazoo_errors.NoChildrenForEphemeralsError
    )
    return parent_of(operation.path) if is_parent else operation.path
