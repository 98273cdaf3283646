"""Options of TLS, with Kafka's names: `kafka.security.protocol` and `kafka.ssl.…`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_connectors.wire.tls import VERSIONS, TlsSettings

if TYPE_CHECKING:
    from spark_connectors.options import Options

_PROTOCOL: Final = "kafka.security.protocol"
_PLAINTEXT, _SSL = "PLAINTEXT", "SSL"
_PREFIX: Final = "kafka.ssl."
_TEXTS: Final = (
    "truststore.type",
    "truststore.location",
    "truststore.certificates",
    "keystore.type",
    "keystore.location",
    "keystore.key",
    "keystore.certificate.chain",
    "key.password",
    "endpoint.identification.algorithm",
    "enabled.protocols",
)


class TlsRefused(ValueError):
    """Options of TLS that cannot be obeyed. The text names one, and quotes no secret."""


def tls_of(options: Options) -> TlsSettings | None:
    """The settings of TLS; None: the connection is PLAINTEXT. Raises TlsRefused."""
    protocol = options.text(_PROTOCOL) or _PLAINTEXT
    given = {name: value for name in _TEXTS if (value := options.text(_PREFIX + name)) is not None}
    if protocol.upper() == _PLAINTEXT:
        if given:
            raise TlsRefused(f"option {_PREFIX}{min(given)} needs {_PROTOCOL}={_SSL}")
        return None
    if protocol.upper() != _SSL:
        raise TlsRefused(f"option {_PROTOCOL} cannot be {protocol}: only {_PLAINTEXT} and {_SSL} are supported yet")
    for store in ("truststore", "keystore"):
        _check_store(store, given)
    return TlsSettings(
        trusted_file=given.get("truststore.location"),
        trusted_pem=given.get("truststore.certificates"),
        key_file=given.get("keystore.location"),
        key_pem=_key_of(given),
        key_password=given.get("key.password"),
        checks_host=_checks_host(given.get("endpoint.identification.algorithm", "https")),
        versions=_versions(given.get("enabled.protocols")),
    )


def _check_store(store: str, given: dict[str, str]) -> None:
    texts = {"truststore": ("truststore.certificates",), "keystore": ("keystore.key", "keystore.certificate.chain")}
    has_file, has_text = f"{store}.location" in given, any(one in given for one in texts[store])
    kind = given.get(f"{store}.type", "JKS")
    if (has_file or has_text) and kind.upper() != "PEM":
        raise TlsRefused(
            f"option {_PREFIX}{store}.type cannot be {kind}: only PEM is read. "
            f"openssl pkcs12 -in FILE -out FILE.pem -nodes converts a PKCS12 file"
        )
    if has_file and has_text:
        raise TlsRefused(f"option {_PREFIX}{store}.location cannot stand beside {_PREFIX}{texts[store][0]}")


def _key_of(given: dict[str, str]) -> str | None:
    key, chain = given.get("keystore.key"), given.get("keystore.certificate.chain")
    if (key is None) != (chain is None):
        raise TlsRefused(f"option {_PREFIX}keystore.key goes with {_PREFIX}keystore.certificate.chain")
    return None if key is None else f"{key}\n{chain}\n"


def _checks_host(text: str) -> bool:
    if text not in ("https", ""):
        raise TlsRefused(f"option {_PREFIX}endpoint.identification.algorithm cannot be {text}: it is https, or empty")
    return bool(text)


def _versions(text: str | None) -> frozenset[str]:
    found = frozenset(part.strip() for part in (text or "").split(",") if part.strip())
    if unknown := found - VERSIONS.keys():
        raise TlsRefused(f"option {_PREFIX}enabled.protocols cannot name {min(unknown)}: only {', '.join(VERSIONS)}")
    return found or frozenset(VERSIONS)
