"""Cipher suites by their IANA names, as in `ssl.cipher.suites`, in the names of OpenSSL. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kafkawire.security.tls.settings import TLS_1_2, TLS_1_3, TlsRefused

# Python cannot choose among the suites of TLS 1.3: OpenSSL offers these.
SUITES_OF_TLS_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
_NAME: Final = re.compile(
    r"TLS_(?P<exchange>(?:EC)?DHE_(?:RSA|ECDSA)|RSA)_WITH_(?P<cipher>[A-Z0-9_]+?)(?:_(?P<hash>SHA\d*))?"
)


def openssl_name(suite: str) -> str | None:
    """The name of a suite of TLS 1.2 in OpenSSL; None for a name of another form."""
    match = _NAME.fullmatch(suite)
    if match is None:
        return None
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    if match["cipher"].startswith("CHACHA20"):
        return f"{exchange}CHACHA20-POLY1305"
    cipher = match["cipher"].replace("AES_", "AES").removesuffix("_CBC").replace("_8", "8").replace("_", "-")
    return f"{exchange}{cipher}" if cipher.endswith(("CCM", "CCM8")) else f"{exchange}{cipher}-{match['hash']}"


def chosen(suites: Sequence[str], protocols: frozenset[str]) -> tuple[str, frozenset[str]]:
    """OpenSSL's list of the suites of TLS 1.2, and the protocols that have a suite. Raises TlsRefused."""
    of_1_3 = [one for one in suites if one in SUITES_OF_TLS_1_3]
    of_1_2 = [one for one in suites if one not in SUITES_OF_TLS_1_3]
    if TLS_1_3 in protocols and of_1_3 and len({*of_1_3}) < len(SUITES_OF_TLS_1_3):
        missing = ", ".join(sorted(SUITES_OF_TLS_1_3 - {*of_1_3}))
        raise TlsRefused(f"ssl.cipher.suites: {TLS_1_3} is offered with all of its suites or not at all; add {missing}")
    names = []
    for one in of_1_2:
        name = openssl_name(one)
        if name is None:
            raise TlsRefused(f"ssl.cipher.suites: {one} is not supported")
        names.append(name)
    offered = {TLS_1_3: bool(of_1_3), TLS_1_2: bool(of_1_2)}
    found = frozenset(one for one in protocols if offered[one])
    if not found:
        raise TlsRefused("ssl.cipher.suites: no suite is for a protocol of ssl.enabled.protocols")
    return ":".join(names), found
