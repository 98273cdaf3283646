"""Options of TLS: what they mean, and which are refused by name."""

from __future__ import annotations

import pickle

import pytest

from spark_connectors.options import OptionRefused, Options, settings_of
from spark_connectors.wire.tls import TlsSettings

SECRET = "hunter2"
PEM = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.keystore.type": "PEM"}


def settings(**given: str) -> TlsSettings | None:
    """The settings of options with the prefix `kafka.ssl.`; write underscores for dots."""
    named = {f"kafka.ssl.{key.replace('_', '.')}": value for key, value in given.items()}
    options = Options({"kafka.security.protocol": "SSL", **PEM, **named})
    found = settings_of(options).tls
    options.finish()
    return found


def test_the_authorities_of_the_system() -> None:
    assert settings() == TlsSettings()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"truststore_location": "/ca"}, TlsSettings(trusted_file="/ca")),
        ({"truststore_certificates": "text"}, TlsSettings(trusted_pem="text")),
        ({"keystore_location": "/key"}, TlsSettings(key_file="/key")),
        (
            {"keystore_key": "key", "keystore_certificate_chain": "chain", "key_password": SECRET},
            TlsSettings(key_pem="key\nchain\n", key_password=SECRET),
        ),
        ({"endpoint_identification_algorithm": ""}, TlsSettings(checks_host=False)),
        ({"enabled_protocols": "TLSv1.3"}, TlsSettings(versions=frozenset({"TLSv1.3"}))),
        ({"enabled_protocols": ""}, TlsSettings()),
    ],
)
def test_settings(given: dict[str, str], wanted: TlsSettings) -> None:
    assert settings(**given) == wanted


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"truststore_location": "/ca", "truststore_type": "JKS"}, r"ssl.truststore.type cannot be JKS: only PEM"),
        ({"keystore_location": "/k", "keystore_type": "PKCS12"}, r"openssl pkcs12 -in FILE -out FILE.pem"),
        ({"truststore_location": "/ca", "truststore_certificates": "x"}, r"truststore.location cannot stand beside"),
        ({"keystore_key": SECRET}, r"keystore.key goes with kafka.ssl.keystore.certificate.chain"),
        ({"keystore_certificate_chain": "x"}, r"keystore.key goes with"),
        ({"enabled_protocols": "TLSv1.1"}, r"enabled.protocols cannot name TLSv1.1: only TLSv1.2, TLSv1.3"),
        (
            {"truststore_password": SECRET},
            r"option kafka.ssl.truststore.password cannot be obeyed: there is TLS with PEM",
        ),
        (
            {"endpoint_identification_algorithm": "htps"},
            r"algorithm cannot be htps: it is https, or empty",
        ),
        ({"cipher_suites": "x"}, r"option kafka.ssl.cipher.suites cannot be obeyed"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionRefused, match=reason) as refused:
        settings(**given)
    assert SECRET not in str(refused.value)


def test_options_of_tls_need_its_protocol() -> None:
    with pytest.raises(OptionRefused, match=r"kafka.ssl.truststore.location needs kafka.security.protocol=SSL"):
        settings_of(Options({"kafka.ssl.truststore.location": "/ca"}))


def test_no_secret_is_shown_and_all_reach_the_tasks() -> None:
    found = settings(keystore_key=SECRET, keystore_certificate_chain="chain", key_password=SECRET)
    assert SECRET not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
