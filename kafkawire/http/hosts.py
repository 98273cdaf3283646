"""Host names under which the HTTP listener answers.

A page in a browser can point its own name at any address, this listener's too, and then read the responses (DNS
rebinding). It cannot choose the Host header. So names that are not configured for this broker are refused. Addresses
are allowed, and so are requests without a Host header, which no browser sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ANY: Final = "*"
MISDIRECTED: Final = 421
_REFUSAL: Final = "not asked for by an address, nor by a name of this listener: http.allowed.hosts has them"


class AllowedHosts:
    """`names` of the configuration, the listener's `own` names, and localhost; `*` allows any name."""

    def __init__(self, own: str, names: Iterable[str]) -> None:
        self._names = {"localhost", own.lower(), *(name.lower() for name in names)} - {""}

    def admits(self, host: str) -> bool:
        """Whether requests with this Host header, with or without a port, are answered."""
        name = _name(host)
        return ANY in self._names or name in self._names or _is_address(name)


def _name(host: str) -> str:
    """The host without port, brackets and the dot that may end a full name."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class HostGuard:
    """Guard in front of an application: answers 421 to requests for other hosts."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        asked_for = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if all(map(self._hosts.admits, asked_for)):
            await self._app(scope, receive, send)
        else:
            await JSONResponse({"error": _REFUSAL}, MISDIRECTED)(scope, receive, send)
