"""SaslAuthenticate, key 36: the other side proves who it is, in two messages of SCRAM.

Behavior:
- Behind a SaslHandshake alone; else it is ILLEGAL_SASL_STATE.
- Who does not prove it, or comes by a link that does not count any more, is SASL_AUTHENTICATION_FAILED, and the
  connection ends. Which of it was wrong the log is told, not the other side, as by Kafka.
- A connection that has authenticated is its broker's for as long as it lasts: no session lifetime.
- Needs no authorization: it is how one finds out who asks.

Version notes: 1 the lifetime of sessions (KIP-368).
"""

from __future__ import annotations

from typing import Final

from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode
from kafkawire.security.accepted_links import NotAuthenticated, OutOfPlace
from kafkawire.security.scram import MECHANISM

# Kafka's words.
_OUT_OF_PLACE: Final = "SaslAuthenticate request received after successful authentication"
_FAILED: Final = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {MECHANISM}"
)


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """One of the two."""
    connection = context.connection
    try:
        return SaslAuthenticateResponse(auth_bytes=context.broker.links.answer(connection, bytes(request.auth_bytes)))
    except OutOfPlace:
        return _refused(ErrorCode.ILLEGAL_SASL_STATE, _OUT_OF_PLACE)
    except NotAuthenticated as error:
        connection.ends_because = f"not authenticated: {error}"
        return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED)


def refuse(context: RequestContext, request: SaslAuthenticateRequest, code: ErrorCode) -> SaslAuthenticateResponse:
    """The message."""
    return _refused(code, None)


def _refused(code: ErrorCode, message: str | None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message)
