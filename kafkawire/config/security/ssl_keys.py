"""Keys of TLS on a listener, with Kafka's names and defaults. Each may have a listener's prefix.

An unbuilt one names a class or algorithm of Java: here TLS is OpenSSL's.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kafkawire.config.keys import Key, Update
from kafkawire.config.values import boolean, choice, class_name, directory, password, text, words

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")

_per_broker = partial(Key, update=Update.PER_BROKER)
_java_only = partial(Key, update=Update.PER_BROKER, is_built=False)
_store_type = choice(*STORE_TYPES)

_KEYS: Final = (
    _per_broker(
        "ssl.keystore.type", _store_type, "JKS",
        "The form of the key store: PEM, PKCS12, or JKS, with which the content of the file decides. JKS files "
        "themselves are refused.",
    ),
    _per_broker(
        "ssl.keystore.location", directory, None,
        "The file with the broker's private key and certificates. Other users must not be able to read it.",
    ),
    _per_broker("ssl.keystore.password", password, None, "The password of a PKCS12 key store."),
    _per_broker("ssl.key.password", password, None, "The password of the private key in a PEM key store."),
    _per_broker("ssl.keystore.key", password, None, "The private key in PEM form, in place of a file."),
    _per_broker(
        "ssl.keystore.certificate.chain", password, None,
        "The certificates in PEM form that belong to ssl.keystore.key, the broker's own first.",
    ),
    _per_broker("ssl.truststore.type", _store_type, "JKS", "The form of the trust store, as in ssl.keystore.type."),
    _per_broker(
        "ssl.truststore.location", directory, None, "The file with the certificates that sign those of clients."
    ),
    _per_broker("ssl.truststore.password", password, None, "The password of a PKCS12 trust store."),
    _per_broker(
        "ssl.truststore.certificates", password, None,
        "The certificates that sign those of clients, in PEM form, in place of a file.",
    ),
    _per_broker(
        "ssl.client.auth", choice("required", "requested", "none"), "none",
        "Whether clients show a certificate: required, requested or none. Without a prefix, for SSL listeners alone.",
    ),
    Key(
        "ssl.principal.mapping.rules", text, "DEFAULT",
        "Rules that make a client's principal of the name in its certificate.",
    ),
    _per_broker(
        "ssl.enabled.protocols", words, ",".join(TLS_VERSIONS), "The versions of TLS that are offered."
    ),
    _per_broker(
        "ssl.protocol", choice("TLS", *TLS_VERSIONS), "TLSv1.3", "The newest version of TLS that is offered."
    ),
    _per_broker(
        "ssl.cipher.suites", words, "",
        "The cipher suites that are offered, by IANA's names. Empty: those of OpenSSL's default.",
    ),
    Key(
        "ssl.allow.dn.changes", boolean, "false",
        "Whether a changed key store may have a certificate with another subject.",
    ),
    Key(
        "ssl.allow.san.changes", boolean, "false",
        "Whether a changed key store may have a certificate that lacks alternative names of the one before.",
    ),
    _per_broker(
        "ssl.endpoint.identification.algorithm", choice("https", ""), "https",
        "How a client checks the broker's host name. A listener checks no name, as in Kafka.",
    ),
    _java_only("ssl.engine.factory.class", class_name, None, "The class that makes the engine of TLS."),
    _java_only("ssl.provider", text, None, "The provider of Java for TLS."),
    _java_only("ssl.keymanager.algorithm", text, "SunX509", "The algorithm of Java's key manager."),
    _java_only("ssl.trustmanager.algorithm", text, "PKIX", "The algorithm of Java's trust manager."),
    _java_only("ssl.secure.random.implementation", text, None, "Java's source of random numbers."),
)  # fmt: skip

SSL_KEYS: Final[dict[str, Key]] = {key.name: key for key in _KEYS}
