"""Errors between the command line and a cluster, each with a line for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkawire.requests.errors import ErrorCode


class ClientError(Exception):
    """The command cannot go on. The text is the line for the user."""


class CannotConnect(ClientError):
    """The broker cannot be reached, or has closed the connection."""


class NotSupported(ClientError):
    """The broker does not serve the API, or not in a sufficient version."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of one of several items, such as a group or a partition."""

    code: ErrorCode
    text: str

    def __str__(self) -> str:
        return self.text


_TEXTS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has no leader",
    ErrorCode.KAFKA_STORAGE_ERROR: "the partition is offline",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of this name",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized for the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized for the group",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.INVALID_GROUP_ID: "the group id is not valid",
    ErrorCode.NON_EMPTY_GROUP: "the group is not empty",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic",
    # OffsetCommit answers this to a client outside the group, if the group has members.
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has active members",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized for the transactional id",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is not valid",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized for the cluster",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a coordinator of a newer epoch has ended a transaction since",
}


def refusal(code: int, message: str | None = None) -> Refusal:
    """The Refusal for an error code of a response, with the broker's text if there is one."""
    try:
        known = ErrorCode(code)
    except ValueError:  # a code of a newer broker
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error {code}")
    return Refusal(known, message or _TEXTS.get(known, known.name))
