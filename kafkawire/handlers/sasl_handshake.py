"""SaslHandshake, key 17: the mechanism by which the other side will authenticate itself.

Behavior:
- Only brokers authenticate themselves, to each other, over inter.broker.listener.name. Over another listener, or if
  this broker shares no secret with others, it is ILLEGAL_SASL_STATE, as in Kafka over a listener without SASL
  (KafkaApis.handleSaslHandshakeRequest). So it is after authentication has begun.
- There is one mechanism. Any other is UNSUPPORTED_SASL_MECHANISM, with the list, and the connection ends, as in
  SaslServerAuthenticator.
- No authorization is needed: the request is part of determining the principal.

Version notes: from version 1 on SaslAuthenticate carries the tokens (KIP-152); tokens without a header, as after
version 0, are not supported.
"""

from __future__ import annotations

from typing import Final

from kafkawire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode
from kafkawire.security.accepted_links import UnexpectedRequest, UnknownMechanism
from kafkawire.security.scram import MECHANISM

FIRST_VERSION_WITH_AUTHENTICATE: Final = 1


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin the authentication."""
    if context.api_version < FIRST_VERSION_WITH_AUTHENTICATE:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    connection = context.connection
    try:
        context.broker.links.begin(connection, request.mechanism)
    except UnexpectedRequest:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    except UnknownMechanism as error:
        connection.ends_because = f"no SASL mechanism of ours: {error}"
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[MECHANISM])
    return SaslHandshakeResponse(mechanisms=[MECHANISM])


def refuse(context: RequestContext, request: SaslHandshakeRequest, code: ErrorCode) -> SaslHandshakeResponse:
    """A response with the error."""
    return SaslHandshakeResponse(error_code=code)


API = Api("sasl_handshake", SaslHandshakeRequest, handle, refuse, 0, 1)
