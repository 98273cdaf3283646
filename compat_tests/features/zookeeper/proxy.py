"""Proxy between a client and a ZooKeeper server that loses requests or replies on demand."""

from __future__ import annotations

from contextlib import suppress

import trio


class Proxy:
    """Passes bytes on to one server, in both directions, until a fault is set."""

    def __init__(self, server_port: int) -> None:
        self.is_black_hole = False  # loses all bytes in both directions, and closes no connection
        self.swallows_replies = False  # loses all bytes from the server
        self.is_shut = False  # new connections are closed at once
        self._server_port = server_port
        self._listeners: list[trio.SocketListener] = []
        self._connections: set[trio.CancelScope] = set()

    @property
    def address(self) -> str:
        port = self._listeners[0].socket.getsockname()[1]
        return f"127.0.0.1:{port}"

    def cut(self) -> None:
        """Closes all connections."""
        for connection in self._connections:
            connection.cancel()

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listens until it is cancelled."""
        self._listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started()
        await trio.serve_listeners(self._connect, self._listeners)

    async def _connect(self, client: trio.SocketStream) -> None:
        if self.is_shut:
            await client.aclose()
            return
        with trio.CancelScope() as connection:
            self._connections.add(connection)
            server = await trio.open_tcp_stream("127.0.0.1", self._server_port)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, client, server, connection, False)
                nursery.start_soon(self._pass_on, server, client, connection, True)
        self._connections.discard(connection)

    async def _pass_on(
        self, source: trio.SocketStream, target: trio.SocketStream, connection: trio.CancelScope, is_reply: bool
    ) -> None:
        with suppress(trio.BrokenResourceError):
            async for part in source:
                if not (self.is_black_hole or (is_reply and self.swallows_replies)):
                    await target.send_all(part)
        connection.cancel()
