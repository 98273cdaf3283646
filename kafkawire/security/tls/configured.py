"""Settings of TLS from the properties of a listener or a client."""

from __future__ import annotations

from kafkawire.config.security.listener_keys import ListenerValues
from kafkawire.config.security.ssl_keys import TLS_VERSIONS
from kafkawire.config.values import ConfigError
from kafkawire.security.tls.mapping_rules import MappingRules
from kafkawire.security.tls.settings import (
    ClientAuth,
    KeyStoreSettings,
    StoreType,
    TlsSettings,
    TrustStoreSettings,
)


def tls_settings(values: ListenerValues) -> TlsSettings:
    """The settings of one listener. Raises ConfigError."""
    return TlsSettings(
        key_store=KeyStoreSettings(
            type=StoreType(values["ssl.keystore.type"]),
            location=values["ssl.keystore.location"],
            password=values["ssl.keystore.password"],
            key_password=values["ssl.key.password"],
            key=values["ssl.keystore.key"],
            certificate_chain=values["ssl.keystore.certificate.chain"],
        ),
        trust_store=TrustStoreSettings(
            type=StoreType(values["ssl.truststore.type"]),
            location=values["ssl.truststore.location"],
            password=values["ssl.truststore.password"],
            certificates=values["ssl.truststore.certificates"],
        ),
        protocols=_protocols(values),
        cipher_suites=values["ssl.cipher.suites"],
        client_auth=ClientAuth(values["ssl.client.auth"]),
        mapping_rules=_rules(values),
        allows_dn_changes=values["ssl.allow.dn.changes"],
        allows_san_changes=values["ssl.allow.san.changes"],
    )


def _protocols(values: ListenerValues) -> frozenset[str]:
    """The versions of TLS that are enabled, up to the newest one."""
    key, newest = "ssl.enabled.protocols", values["ssl.protocol"]
    enabled = values[key] or TLS_VERSIONS
    for one in enabled:
        if one not in TLS_VERSIONS:
            name = values.name_of(key)
            raise ConfigError(f"{name}: {one} is not one of {', '.join(TLS_VERSIONS)}", name)
    found = frozenset(one for one in enabled if newest not in TLS_VERSIONS or one <= newest)
    if not found:
        name = values.name_of("ssl.protocol")
        raise ConfigError(f"{name}={newest}: no version of {key} is as old", name)
    return found


def _rules(values: ListenerValues) -> MappingRules:
    key = "ssl.principal.mapping.rules"
    try:
        return MappingRules(values[key])
    except ValueError as error:
        name = values.name_of(key)
        raise ConfigError(f"{name}: {error}", name) from None
