"""Output of `kafkawire find` for given HTTP replies. compat_tests/features/cli asks a real broker."""

from __future__ import annotations

import io
import json
from http.client import IncompleteRead, RemoteDisconnected
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkawire.cli import main


def find(monkeypatch: pytest.MonkeyPatch, answer: bytes | Exception, *arguments: str) -> Result:
    def urlopen(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    return CliRunner().invoke(main, ["find", "orders", "--key", "1", *arguments], catch_exceptions=False)


def answer_with(timestamp_ms: int) -> bytes:
    message = {"partition": 0, "offset": 7, "timestamp": timestamp_ms, "key": "k", "value": "v"}
    return json.dumps({"messages": [message], "next": None}).encode()


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (1_700_000_000_000, "2023-11-14T22:13:20.000+00:00"),
        (2**63 - 1, "9223372036854775807"),
        (10**15, "1000000000000000"),
        (-1, "-"),
    ],
)
def test_any_timestamp_is_shown(monkeypatch: pytest.MonkeyPatch, timestamp_ms: int, shown: str) -> None:
    result = find(monkeypatch, answer_with(timestamp_ms))
    assert result.stdout.splitlines()[1].split() == ["0", "7", shown, "k", "v"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ConnectionResetError(104, "reset by peer"), "does not answer: [Errno 104] reset by peer"),
        (RemoteDisconnected("Remote end closed connection"), "does not answer: Remote end closed connection"),
        (IncompleteRead(b"{"), "does not answer: IncompleteRead(1 bytes read)"),
        (b"<html>", "sent a reply that is not JSON"),
        (b"\xff", "sent a reply that is not JSON"),
        (b"[]", "answers something else than records"),
        (b"{}", "answers something else than records"),
    ],
)
def test_an_invalid_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, answer: bytes | Exception, said: str) -> None:
    result = find(monkeypatch, answer)
    assert result.exit_code == 1
    assert result.stderr == f"Error: http://127.0.0.1:9644/v1/topics/orders/messages {said}\n"


def test_an_address_that_is_none() -> None:
    command = ["find", "orders", "--key", "1", "--http", "http://localhost:port"]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 1
    assert "nonnumeric port" in result.stderr
