"""Claim of a broker that opens a peer connection: sender, receiver, and the number of the connection.

For one sender and purpose, each number is above all earlier ones: first by the sender's registration, then by a count
of its process. The claim is in SCRAM's first message, and the proof covers it (docs/formats/broker-links.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

PURPOSE_MAX_CHARACTERS: Final = 255

_USER: Final = "broker-"
_DIGITS_MAX: Final = 19
_INCARNATION_DIGITS: Final = 32


class LinkNumber(NamedTuple):
    """Number of a peer connection. `broker_epoch` counts the sender's registrations in the metadata."""

    broker_epoch: int
    counter: int


class LinkClaim(NamedTuple):
    """Claim of a sender. `receiver` and `incarnation` are the registration that it is valid for."""

    sender: int
    purpose: str
    number: LinkNumber
    receiver: int
    incarnation: bytes

    @property
    def user(self) -> str:
        """The sender's name for SCRAM."""
        return f"{_USER}{self.sender}"

    def extensions(self) -> Mapping[str, str]:
        """All other fields."""
        return {
            "purpose": self.purpose,
            "epoch": str(self.number.broker_epoch),
            "counter": str(self.number.counter),
            "receiver": str(self.receiver),
            "incarnation": self.incarnation.hex(),
        }

    @classmethod
    def read(cls, user: str, extensions: Mapping[str, str]) -> Self:
        """Parse the fields that `user` and `extensions` return. Raises ValueError for others."""
        if extensions.keys() != _NAMES or not user.startswith(_USER):
            raise ValueError("not the fields of a link between brokers")
        purpose, incarnation = extensions["purpose"], extensions["incarnation"]
        if not 0 < len(purpose) <= PURPOSE_MAX_CHARACTERS or len(incarnation) != _INCARNATION_DIGITS:
            raise ValueError("no purpose, or no incarnation")
        number = LinkNumber(_count(extensions["epoch"]), _count(extensions["counter"]))
        sender = _count(user.removeprefix(_USER))
        return cls(sender, purpose, number, _count(extensions["receiver"]), bytes.fromhex(incarnation))


def _count(digits: str) -> int:
    """Parse a number in its only valid form, so that a name stands for one broker. Raises ValueError."""
    if len(digits) > _DIGITS_MAX or not digits.isdecimal() or str(int(digits)) != digits:
        raise ValueError(f"not a number: {digits!r}")
    return int(digits)


_NAMES: Final = LinkClaim(0, "", LinkNumber(0, 0), 0, b"").extensions().keys()
