"""What can go wrong between a connector and a cluster, each as an error of its own that says who and what in one line.

Spark shows what a task raised as text and nothing else: these are what a user has to go by. They are pickled on their
way from a worker, so they take what they are made of as positional arguments.
"""

from __future__ import annotations

from spark_connectors.wire.codes import RETRIABLE, name_of


class WireError(Exception):
    """A cluster was not reached, not understood, or said no."""


class ConnectionLost(WireError):
    """Nobody is there, or who was there broke off or fell silent.

    `was_sent` tells whether the request may have reached the broker, who may have done then what it was asked.
    """

    def __init__(self, text: str, was_sent: bool) -> None:
        super().__init__(text, was_sent)
        self.text = text
        self.was_sent = was_sent

    def __str__(self) -> str:
        return self.text


class GaveUp(WireError):
    """It was tried until the deadline; the text says what was the matter last, and so does `__cause__`."""


class MalformedReply(WireError):
    """Bytes that are no reply as Kafka gives it."""


class ReplyTooLarge(WireError):
    """A reply of more bytes than are taken from a broker: nothing was allocated for it."""


class Unsupported(WireError):
    """The broker does not have the API, or not in the version that is spoken here."""


class BrokerError(WireError):
    """A broker's no, by one of Kafka's error codes; `subject` is what it was asked for."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        super().__init__(code, subject, message)
        self.code = code
        self.subject = subject
        self.message = message

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may well be answered a moment later."""
        return self.code in RETRIABLE

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"{self.subject}: {name_of(self.code)}{said}"
