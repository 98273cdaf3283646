"""The handshake of a peer connection: both brokers prove that they know the secret (RULES K23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkawire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.security.scram import MECHANISM, Salted, ScramClient, ScramError
from kafkawire.wire.message import Message
from kafkawire.wire.primitives import DecodeError

if TYPE_CHECKING:
    from kafkawire.peers.frames import FrameStream
    from kafkawire.security.link_claim import LinkClaim

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

_ReplyT = TypeVar("_ReplyT", bound=Message)


class LinkRefused(Exception):
    """The other broker refuses the handshake."""


# Errors that end a peer connection or its handshake, beside the exceptions of trio's streams.
LINK_ERRORS: Final = (LinkRefused, ScramError, DecodeError)


async def shake_hands(stream: FrameStream, claim: LinkClaim, salted: Salted, nonce: str) -> None:
    """Perform the handshake. Raises LinkRefused, ScramError, DecodeError, and the exceptions of streams."""
    handshake = SaslHandshakeRequest(mechanism=MECHANISM)
    _check(await _exchange(stream, handshake, HANDSHAKE_VERSION, SaslHandshakeResponse))
    client = ScramClient(claim.user, salted, nonce, claim.extensions())
    challenge = await _send(stream, client.first())
    client.check(await _send(stream, client.final(challenge)))


async def _send(stream: FrameStream, message: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=message)
    answer = await _exchange(stream, request, AUTHENTICATE_VERSION, SaslAuthenticateResponse)
    _check(answer)
    return bytes(answer.auth_bytes)


def _check(answer: SaslHandshakeResponse | SaslAuthenticateResponse) -> None:
    if answer.error_code:
        code = answer.error_code
        raise LinkRefused(ErrorCode(code).name if code in set(ErrorCode) else f"error {code}")


async def _exchange(stream: FrameStream, request: Message, version: int, reply: type[_ReplyT]) -> _ReplyT:
    await stream.send([encode_request(request, version, 0)])
    _, answer = decode_response(await stream.receive(), request.API_KEY, version)
    assert isinstance(answer, reply)
    return answer
