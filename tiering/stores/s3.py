"""S3 and stores with its protocol: the tier's only access to the network, and the only use of minio and urllib3.

Requests are signed by minio's signer and sent by urllib3: minio's own `put_object` knows no conditional header, and
holds the content in memory. The signature covers the CRC-32C of the payload in place of the payload; the store checks
it before the object exists. There are no retries here: the caller knows what a second try may mean.
"""

from __future__ import annotations

import base64
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from weakref import WeakSet
from xml.etree import ElementTree as ET

from minio.credentials.providers import AWSConfigProvider, ChainedProvider, EnvAWSProvider, StaticProvider
from minio.signer import sign_v4_s3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, SSLError

from tiering.object_store import (
    LIST_MAX,
    Content,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
)
from tiering.stores import pacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from minio.credentials.providers import Provider

    from tiering.object_store import Workers

CONNECT_TIMEOUT_S = 2.0
IO_TIMEOUT_S = 10.0  # nothing was sent or received for so long
CONNECTIONS_MAX = 32
LEAST_BYTES_PER_S = pacing.LEAST_BYTES_PER_S // 2  # a request that moves on, but slower, ends with an error
REPLY_MAX_BYTES = 4 * 1024 * 1024  # of a listing, or of an error
WHOLE_MAX_BYTES = 64 * 1024 * 1024  # of an object that is read without a size
_READ_BYTES = 256 * 1024
_UNSIGNED = "UNSIGNED-PAYLOAD"
_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_ARRIVED_WRONG = ("BadDigest", "XAmzContentChecksumMismatch", "IncompleteBody", "RequestTimeout")
_CONFLICT, _PRECONDITION_FAILED, _RANGE, _TOO_MANY = 409, 412, 416, 429
_OK, _NO_CONTENT, _PARTIAL, _NOT_FOUND, _SERVER_ERROR = 200, 204, 206, 404, 500


@dataclass(frozen=True, slots=True)
class S3Options:
    """Options of an S3 store. `endpoint`: scheme, host and port. `credentials` are asked before each request: they may
    expire."""

    endpoint: str
    bucket: str
    region: str
    credentials: Provider = field(repr=False)


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes | bytearray


class _Part(NamedTuple):
    """A part of an object; it ends with the object, if that is shorter."""

    start: int
    size_bytes: int | None

    @property
    def range(self) -> str:
        end = "" if self.size_bytes is None else self.start + max(self.size_bytes, 1) - 1  # no range is empty
        return f"bytes={self.start}-{end}"


class S3Store:
    """Implements `tiering.object_store.ObjectStore`."""

    def __init__(self, options: S3Options, workers: Workers) -> None:
        self.options = options
        self._workers = workers
        self._connections = _Connections()
        self._pools = PoolManager(
            maxsize=CONNECTIONS_MAX,
            block=False,
            retries=False,
            timeout=Timeout(connect=CONNECT_TIMEOUT_S, read=IO_TIMEOUT_S),
        )
        self._pools.pool_classes_by_scheme = _pool_classes(self._connections)

    async def put(self, key: str, content: Content, *, if_absent: bool = False) -> None:
        headers = {
            "Content-Length": str(content.size_bytes),
            "x-amz-checksum-crc32c": base64.b64encode(content.crc32c.to_bytes(4, "big")).decode(),
        }
        if if_absent:
            headers["If-None-Match"] = "*"
        await self._workers.run(partial(self._ask, "PUT", key, headers=headers, content=content))

    async def get(self, key: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        return bytes(await self._get(key, _Part(start, size_bytes)))

    async def get_part(self, key: str, start: int, size_bytes: int) -> bytes | bytearray:
        return await self._get(key, _Part(start, size_bytes))

    async def _get(self, key: str, part: _Part) -> bytes | bytearray:
        reply = await self._workers.run(partial(self._ask, "GET", key, headers={"Range": part.range}, part=part))
        is_all = part.size_bytes is None or len(reply.data) <= part.size_bytes
        return reply.data if is_all else reply.data[: part.size_bytes]

    async def head(self, key: str) -> ObjectInfo | None:
        try:
            ask = partial(self._ask, "HEAD", key, headers={"x-amz-checksum-mode": "ENABLED"})
            headers = (await self._workers.run(ask)).headers
        except ObjectMissing:
            return None
        try:
            modified_ms = int(parsedate_to_datetime(headers["Last-Modified"]).timestamp() * 1000)
            return ObjectInfo(key, int(headers["Content-Length"]), modified_ms, _crc32c(headers))
        except (KeyError, ValueError) as error:
            raise StoreUnavailable(f"HEAD {key}: a reply that makes no sense: {error}") from error

    async def delete(self, key: str) -> None:
        with suppress(ObjectMissing):
            await self._workers.run(partial(self._ask, "DELETE", key))

    async def list_after(self, prefix: str, after: str = "", count_max: int = LIST_MAX) -> Sequence[ObjectInfo]:
        query = {"list-type": "2", "max-keys": str(min(count_max, LIST_MAX)), "prefix": prefix}
        if after:
            query["start-after"] = after
        return _listed((await self._workers.run(partial(self._ask, "GET", "", query=query))).data)

    def close(self) -> None:
        self._connections.close()
        self._pools.clear()

    def _ask(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        part: _Part | None = None,
    ) -> _Reply:
        """Send a request and read its reply, on a thread. Raises as `ObjectStore`."""
        path = quote(f"/{self.options.bucket}/{key}", safe="/-_.~")
        query_text = urlencode(sorted((query or {}).items()), quote_via=quote, safe="-_.~")
        url = f"{self.options.endpoint}{path}{'?' if query_text else ''}{query_text}"
        size_max_bytes = REPLY_MAX_BYTES if part is None else part.size_bytes or WHOLE_MAX_BYTES
        deadline = _Deadline(url, size_max_bytes if content is None else content.size_bytes)
        body = None if content is None else deadline.keep(pacing.evenly(content))
        try:
            signed = self._signed(method, url, headers or {})
            reply = self._pools.request(method, url, headers=signed, body=body, preload_content=False, redirect=False)
            try:
                if part is not None and part.start and reply.status == _OK:
                    raise StoreRefused(f"{method} {key}: the store ignores the requested range of an object")
                is_part = part is not None and reply.status in (_OK, _PARTIAL)
                read = deadline.keep(iter(lambda: reply.read1(_READ_BYTES), b""))
                content_length = _content_length(reply.headers) if is_part else 0
                data = _bounded(read, size_max_bytes if is_part else REPLY_MAX_BYTES, url, content_length)
                answered = _Reply(reply.status, reply.headers, data)
            except BaseException:
                reply.close()  # the next user of the connection must not read the rest
                raise
            reply.release_conn()
        except ValueError as error:  # minio's providers raise it if they find no credentials
            raise StoreRefused(f"{self.options.endpoint}: {error}") from error
        except SSLError as error:
            raise StoreRefused(f"{self.options.endpoint}: {error}") from error
        except (HTTPError, OSError) as error:
            raise StoreUnavailable(f"{method} {key}: {error}") from error
        if (
            answered.status == _OK
            and "Content-Length" not in answered.headers
            and "Transfer-Encoding" not in answered.headers
        ):
            raise StoreUnavailable(f"{method} {key}: a reply that was cut short")
        return self._judged(answered, method, key)

    def _signed(self, method: str, url: str, headers: Mapping[str, str]) -> dict[str, Any]:
        now = datetime.now(UTC)
        split = urlsplit(url)
        credentials = self.options.credentials.retrieve()
        all_headers: dict[str, Any] = {
            **headers,
            "Host": split.netloc,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
            "x-amz-content-sha256": _UNSIGNED,
        }
        if credentials.session_token:
            all_headers["x-amz-security-token"] = credentials.session_token
        return dict(
            sign_v4_s3(
                method=method,
                url=split,
                region=self.options.region,
                headers=all_headers,
                credentials=credentials,
                content_sha256=_UNSIGNED,
                date=now,
            )
        )

    def _judged(self, reply: _Reply, method: str, key: str) -> _Reply:
        if reply.status in (_OK, _NO_CONTENT, _PARTIAL):
            return reply
        if reply.status == _RANGE:
            return reply._replace(data=b"")  # the range begins behind the end
        code, message = _error(reply.data)
        text = f"{method} {key or self.options.bucket}: {reply.status} {code} {message}".rstrip()
        if reply.status == _NOT_FOUND and code != "NoSuchBucket":
            raise ObjectMissing(text)
        if reply.status == _PRECONDITION_FAILED:
            raise ObjectExists(text)
        is_passing = reply.status in (_CONFLICT, _TOO_MANY) or reply.status >= _SERVER_ERROR
        if is_passing or code in _ARRIVED_WRONG:
            raise StoreUnavailable(text)
        raise StoreRefused(text)


def found_credentials(access_key: str, secret_key: str) -> Provider:
    """Static credentials; without a key, those of the environment or of ~/.aws/credentials."""
    if access_key:
        return StaticProvider(access_key, secret_key)
    return ChainedProvider([EnvAWSProvider(), AWSConfigProvider()])


class _Connections:
    """The open connections; worker threads open them, and `close` ends them from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakSet[HTTPConnection] = WeakSet()
        self._is_closed = False

    def add(self, connection: HTTPConnection) -> None:
        with self._lock:
            self._open.add(connection)
            if self._is_closed:
                _end(connection)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for connection in self._open:
                _end(connection)


def _end(connection: HTTPConnection) -> None:
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


class _Deadline:
    """The deadline of a request that moves `size_bytes`."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self._name = name
        self._at_s = time.monotonic() + CONNECT_TIMEOUT_S + 2 * IO_TIMEOUT_S + size_bytes / LEAST_BYTES_PER_S

    def keep(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        """Pass parts on until the deadline. Raises StoreUnavailable."""
        for part in parts:
            if time.monotonic() > self._at_s:
                raise StoreUnavailable(f"{self._name}: it takes too long")
            yield part


def _bounded(parts: Iterator[bytes], size_max_bytes: int, name: str, content_length: int) -> bytearray:
    """Collect parts, in a buffer of the size that the reply announces. Raises StoreUnavailable if there are more
    bytes."""
    found, end = bytearray(min(content_length, size_max_bytes)), 0
    for part in parts:
        end += len(part)
        if end > size_max_bytes:
            raise StoreUnavailable(f"{name}: a reply that is longer than requested")
        found[end - len(part) : end] = part
    del found[end:]
    return found


def _content_length(headers: Mapping[str, str]) -> int:
    value = headers.get("Content-Length", "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _pool_classes(connections: _Connections) -> dict[str, type[HTTPConnectionPool]]:
    """Connection pools whose connections are known, and have IO_TIMEOUT_S for all I/O: urllib3 sends with the connect
    timeout."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(IO_TIMEOUT_S)
            connections.add(self)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(IO_TIMEOUT_S)
            connections.add(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _parsed(data: bytes | bytearray) -> ET.Element:
    """Parse a reply as XML. Raises StoreUnavailable."""
    try:
        return ET.fromstring(data)  # noqa: S314 - of bounded size, and expat bounds what entities make of it
    except ET.ParseError as error:
        raise StoreUnavailable(f"a reply that is no XML: {error}") from error


def _error(data: bytes | bytearray) -> tuple[str, str]:
    """The code and the message of an error; empty without a body, as for HEAD."""
    if not data:
        return "", ""
    try:
        parsed = _parsed(data)
    except StoreUnavailable:
        return "", ""
    return parsed.findtext("Code", ""), parsed.findtext("Message", "")


def _crc32c(headers: Mapping[str, str]) -> int | None:
    """The CRC-32C of a whole object; None for a multipart object, which has another kind of checksum."""
    try:
        checksum = base64.b64decode(headers.get("x-amz-checksum-crc32c", ""), validate=True)
    except ValueError:
        return None
    return int.from_bytes(checksum, "big") if len(checksum) == 4 else None


def _listed(data: bytes | bytearray) -> list[ObjectInfo]:
    """The objects of a listing. Raises StoreUnavailable."""
    try:
        return _contents(data)
    except (KeyError, ValueError) as error:
        raise StoreUnavailable(f"a listing that makes no sense: {error}") from error


def _contents(data: bytes | bytearray) -> list[ObjectInfo]:
    found = []
    for one in _parsed(data):
        if one.tag.removeprefix(_NAMESPACE) != "Contents":
            continue
        fields = {child.tag.removeprefix(_NAMESPACE): child.text or "" for child in one}
        modified = datetime.fromisoformat(fields["LastModified"].replace("Z", "+00:00"))
        found.append(ObjectInfo(fields["Key"], int(fields["Size"]), int(modified.timestamp() * 1000)))
    return found
