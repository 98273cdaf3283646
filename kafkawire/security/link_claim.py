"""What a broker says of a link that it opens to another one: who it is, whom it means, and which link this is.

A *link* is a connection between brokers with a number. Of one sender and purpose each is numbered above all before it:
by the sender's registration, then by a count of its process's. It goes with SCRAM's first message, under the proof
(docs/formats/broker-links.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

PURPOSE_MAX_CHARACTERS: Final = 255

_USER: Final = "broker-"
_DIGITS_MAX: Final = 19
_INCARNATION_DIGITS: Final = 32


class LinkNumber(NamedTuple):
    """`broker_epoch`: of the sender, as the cluster's metadata counts its registrations."""

    broker_epoch: int
    counter: int


class LinkClaim(NamedTuple):
    """`receiver` and `incarnation`: the registration of the broker that is meant. The link is good for no other."""

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
        """All else."""
        return {
            "purpose": self.purpose,
            "epoch": str(self.number.broker_epoch),
            "counter": str(self.number.counter),
            "receiver": str(self.receiver),
            "incarnation": self.incarnation.hex(),
        }

    @classmethod
    def read(cls, user: str, extensions: Mapping[str, str]) -> Self:
        """Raises ValueError for what `user` and `extensions` do not give."""
        if extensions.keys() != _NAMES or not user.startswith(_USER):
            raise ValueError("not what a broker says of a link")
        purpose, incarnation = extensions["purpose"], extensions["incarnation"]
        if not 0 < len(purpose) <= PURPOSE_MAX_CHARACTERS or len(incarnation) != _INCARNATION_DIGITS:
            raise ValueError("no purpose, or no incarnation")
        number = LinkNumber(_count(extensions["epoch"]), _count(extensions["counter"]))
        sender = _count(user.removeprefix(_USER))
        return cls(sender, purpose, number, _count(extensions["receiver"]), bytes.fromhex(incarnation))


def _count(digits: str) -> int:
    """In the one way to write it: a name stands for one broker."""
    if len(digits) > _DIGITS_MAX or not digits.isdecimal() or str(int(digits)) != digits:
        raise ValueError(f"not a number: {digits!r}")
    return int(digits)


_NAMES: Final = LinkClaim(0, "", LinkNumber(0, 0), 0, b"").extensions().keys()
