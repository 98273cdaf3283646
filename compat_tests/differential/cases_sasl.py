"""SASL where there is none: a listener without it authenticates no client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side


@case("sasl_handshake")
def mechanisms(side: Side, version: int) -> None:
    for mechanism in ("SCRAM-SHA-256", "PLAIN", "GSSAPI", "no such mechanism", ""):
        side.ask("sasl_handshake", version, {"mechanism": mechanism}, label=mechanism)


@case("sasl_authenticate")
def without_a_mechanism(side: Side, version: int) -> None:
    for message in (b"n,,n=compat,r=nonce", b""):
        side.ask("sasl_authenticate", version, {"auth_bytes": message}, label=f"{len(message)} bytes")
    side.ask("sasl_handshake", 1, {"mechanism": "SCRAM-SHA-256"})
    side.ask("sasl_authenticate", version, {"auth_bytes": b"n,,n=compat,r=nonce"}, label="behind a handshake")
