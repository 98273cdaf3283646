"""SaslAuthenticate, key 36: a broker authenticates itself, in two messages of SCRAM.

Behavior:
- It is allowed only behind a SaslHandshake; else it is ILLEGAL_SASL_STATE.
- Without a valid proof, or over a peer connection that is void, it is SASL_AUTHENTICATION_FAILED, and the connection
  ends. The reason is logged, and not sent, as in Kafka.
- An authenticated connection belongs to its broker as long as it lasts: there is no session lifetime.
- No authorization is needed: the request determines the principal.

Version notes: 1 the lifetime of sessions (KIP-368).
"""

from __future__ import annotations

from typing import Final

from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode
from kafkawire.security.accepted_links import NotAuthenticated, UnexpectedRequest
from kafkawire.security.scram import MECHANISM

# Kafka's texts.
_OUT_OF_PLACE: Final = "SaslAuthenticate request received after successful authentication"
_FAILED: Final = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {MECHANISM}"
)


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Answer one of the two messages."""
    connection = context.connection
    try:
        return SaslAuthenticateResponse(auth_bytes=context.broker.links.answer(connection, bytes(request.auth_bytes)))
    except UnexpectedRequest:
        return _refused(ErrorCode.ILLEGAL_SASL_STATE, _OUT_OF_PLACE)
    except NotAuthenticated as error:
        connection.ends_because = f"not authenticated: {error}"
        return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED)


def refuse(context: RequestContext, request: SaslAuthenticateRequest, code: ErrorCode) -> SaslAuthenticateResponse:
    """A response with the error."""
    return _refused(code, None)


def _refused(code: ErrorCode, message: str | None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message)


API = Api("sasl_authenticate", SaslAuthenticateRequest, handle, refuse, 0, 2)
