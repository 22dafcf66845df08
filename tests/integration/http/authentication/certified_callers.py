"""Who has a certificate, what a broker makes of it, and how they call."""

import base64
import socket
import ssl
from pathlib import Path
from typing import Any, Final

import httpx
from cryptography.x509.oid import NameOID

from tests.testkit.authorization import HERE
from tests.testkit.certificates import ORGANIZATION, IssuedCertificate, Subject, person
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import DEADLINE_S, RunningService, transport_from

PROXY: Final = "127.0.0.5"
FAR: Final = "192.0.2.44"
UNIT: Final = NameOID.ORGANIZATIONAL_UNIT_NAME

PEOPLE: dict[str, tuple[Subject, str, list[tuple[str, ...]]]] = {
    "alterer": (person("alterer"), "CN=alterer,O=Example,C=DE", [("ALTER_CONFIGS",)]),
    "reader": (person("reader"), "CN=reader,O=Example,C=DE", [("DESCRIBE_CONFIGS",)]),
    "nobody": (person("nobody"), "CN=nobody,O=Example,C=DE", []),
    "writer": (
        person("writer"),
        "CN=writer,O=Example,C=DE",
        [("ALTER_CONFIGS",), ("DESCRIBE_CONFIGS", "DENY")],
    ),
    "escaped": (person(' a,b+"c" '), r"CN=\ a\,b\+\"c\"\ ,O=Example,C=DE", [("ALL",)]),
    "not ASCII": (person("Zo\u00eb \u4e2d"), "CN=Zo\u00eb \u4e2d,O=Example,C=DE", [("ALL",)]),
    "mapped": (
        (*ORGANIZATION, (UNIT, "Mapped"), (NameOID.COMMON_NAME, "carol")),
        "CAROL@EXAMPLE",
        [("DESCRIBE_CONFIGS",)],
    ),
    "by e-mail": (
        (
            (NameOID.EMAIL_ADDRESS, "d@e.f"),
            (NameOID.USER_ID, "d1"),
            (NameOID.DOMAIN_COMPONENT, "x"),
        ),
        "DC=x,UID=d1,1.2.840.113549.1.9.1=#16056440652e66",
        [("ALTER_CONFIGS",)],
    ),
    "somewhere else": (person("else"), "CN=else,O=Example,C=DE", [("ALL", "ALLOW", FAR)]),
}
"""Subject, the user name that the broker makes of it, operation and permission and host of ACLs."""


class CertifiedPrincipal(RawQuotas):
    """One connection to the SSL listener of a broker, with a client certificate."""

    def __init__(self, bootstrap_servers: str, context: ssl.SSLContext) -> None:
        address, _, port = bootstrap_servers.rpartition(":")
        plain = socket.create_connection((address, int(port)), DEADLINE_S)
        self._socket = context.wrap_socket(plain, server_hostname=address)


class Callers:
    """Clients of the service: over TLS with a certificate or without, and through the proxy."""

    def __init__(self, service: RunningService, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self.tls_url = service.tls_url

    def context(self, certificate: IssuedCertificate | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._folder / "authority.pem"))
        if certificate is not None:
            context.load_cert_chain(certificate.write(self._folder / "caller.pem"))
        return context

    def over_tls(
        self, certificate: IssuedCertificate | None = None, **options: Any
    ) -> httpx.Client:
        context = self.context(certificate)
        return httpx.Client(base_url=self.tls_url, verify=context, timeout=DEADLINE_S, **options)

    def through_proxy(
        self, certificate: IssuedCertificate, *, came_from: str = HERE, peer: str = PROXY
    ) -> httpx.Client:
        headers = {
            "Client-Cert": f":{base64.b64encode(certificate.der).decode()}:",
            "X-Forwarded-For": f"{FAR}, {came_from}, 10.1.2.3",
        }
        transport = transport_from(peer)
        return httpx.Client(
            base_url=self._service.url, headers=headers, transport=transport, timeout=DEADLINE_S
        )
