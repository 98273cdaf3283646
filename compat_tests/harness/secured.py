"""A broker with a listener that speaks TLS, and the settings of its clients."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from compat_tests.harness.broker import free_port
from compat_tests.harness.kafkawire_broker import Kafkawire
from testkit.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

HOST = "localhost"


class Secured:
    """A broker with a PLAINTEXT and an SSL listener, and the files of its authority."""

    def __init__(self, directory: Path, client_auth: str = "none") -> None:
        self.authority = Authority(directory)
        self.ca = self.authority.trust_file()
        self.client = self.authority.issue("client@example.org", common_name="client")
        self.client_key = self.authority.write("client.key", self.client.private_key_pem.bytes())
        chain = b"".join(one.bytes() for one in self.client.cert_chain_pems)
        self.client_chain = self.authority.write("client.crt", chain)
        self.client_store = self.authority.key_file(self.client, "client.pem")
        self.port = free_port()
        self.broker = Kafkawire(directory / "broker", {})
        self.broker.overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.broker.port},SSL://127.0.0.1:{self.port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.broker.port},SSL://{HOST}:{self.port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.key_file(self.authority.issue(HOST, "127.0.0.1"))),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.client.auth": client_auth,
        }

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def librdkafka(self, *, shows_certificate: bool = False) -> dict[str, Any]:
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca),
            "broker.address.family": "v4",
        }
        if shows_certificate:
            found["ssl.key.location"] = str(self.client_key)
            found["ssl.certificate.location"] = str(self.client_chain)
        return found

    def java(self, *, shows_certificate: bool = False) -> dict[str, str]:
        """Settings of Java's client, and of Spark's connectors."""
        found = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        if shows_certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.client_store)}
        return found

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client_chain, self.client_key)
        return context

    def java_config(self, *, shows_certificate: bool = False) -> Path:
        lines = (f"{key}={value}\n" for key, value in self.java(shows_certificate=shows_certificate).items())
        return self.authority.write("client.properties", "".join(lines).encode())
