"""By which names the HTTP listener may be asked for.

A page in a browser can point a name of its own at any address, this listener's too, and then read what is answered
(DNS rebinding). It cannot choose the name that is asked for: so one that nobody gave to this broker is refused. An
address is no name, and what is asked for without any does not come from a browser.
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
    """`names` of the configuration, the listener's `own` and localhost; with `*` among them any."""

    def __init__(self, own: str, names: Iterable[str]) -> None:
        self._names = {"localhost", own.lower(), *(name.lower() for name in names)} - {""}

    def admits(self, host: str) -> bool:
        """Whether a Host header, without or with a port, is answered."""
        name = _name(host)
        return ANY in self._names or name in self._names or _is_address(name)


def _name(host: str) -> str:
    """Without port, brackets and the dot that may end a full name."""
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
    """In front of an application: 421 for who was looking for somebody else."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        asked_for = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if all(map(self._hosts.admits, asked_for)):
            await self._app(scope, receive, send)
        else:
            await JSONResponse({"error": _REFUSAL}, MISDIRECTED)(scope, receive, send)
