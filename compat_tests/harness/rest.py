"""A program beside the broker that is talked to over HTTP, in JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_S = 30.0


class RefusedError(Exception):
    """It answered with this status, and these words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class RestService:
    """One that listens on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def call(self, path: str, document: object = None, method: str | None = None) -> Any:
        """What it answers, None if that is nothing. Without a method: GET, or POST if there is a document."""
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
        """Whether it is there, and willing."""
        try:
            self.call(path)
        except (RefusedError, urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True
