"""A program beside the broker with an HTTP API in JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_S = 30.0


class RefusedError(Exception):
    """The answer of a service with an error status, and its text."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class RestService:
    """A service that listens on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def call(self, path: str, document: object = None, method: str | None = None) -> Any:
        """Call the service and return its answer, None if that is empty. `method`: GET, or POST with a document, by
        default. Raises RefusedError."""
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                said = answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise RefusedError(refusal.code, refusal.read().decode(errors="replace")) from None
        return json.loads(said) if said else None

    def answers(self, path: str) -> bool:
        """Whether the path answers without an error."""
        try:
            self.call(path)
        except (RefusedError, urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True
