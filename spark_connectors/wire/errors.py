"""Errors between a connector and a cluster. Each text names the broker and the problem in one line.

Spark shows only the text of a task's error, so a user has no other information. Errors are pickled by workers, so they
take their parts as positional arguments.
"""

from __future__ import annotations

from spark_connectors.wire.codes import RETRIABLE, name_of


class WireError(Exception):
    """The cluster was not reached, was not understood, or refused."""


class ConnectionLost(WireError):
    """The broker cannot be reached, closed the connection, or does not answer.

    `was_sent` tells whether the broker may have received and executed the request; `is_refused`, whether another
    attempt will fail too: no process listens at the address, its host does not exist, or TLS has failed.
    """

    def __init__(self, text: str, was_sent: bool, is_refused: bool = False) -> None:
        super().__init__(text, was_sent, is_refused)
        self.text = text
        self.was_sent = was_sent
        self.is_refused = is_refused

    def __str__(self) -> str:
        return self.text


class GaveUp(WireError):
    """Retries ended at the deadline. The text and `__cause__` have the last problem."""


class MalformedReply(WireError):
    """Bytes that are no valid reply."""


class ReplyTooLarge(WireError):
    """A reply with more bytes than allowed. No memory was allocated for it."""


class Unsupported(WireError):
    """The broker does not support the API, or not in the version that is used here."""


class BrokerError(WireError):
    """An error code of a broker; `subject` is the subject of the request."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        super().__init__(code, subject, message)
        self.code = code
        self.subject = subject
        self.message = message

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.code in RETRIABLE

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"{self.subject}: {name_of(self.code)}{said}"
