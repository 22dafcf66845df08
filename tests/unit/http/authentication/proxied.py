"""The service behind a proxy, and headers that name a certificate."""

import base64
import hashlib
from dataclasses import replace
from ipaddress import ip_network
from urllib.parse import quote

from app.http.authentication.authenticator import AuthenticatorChain
from app.http.authentication.certificates import (
    ClientCertHeader,
    ClientCertificates,
    ProxyCertificate,
)
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.authentication.proxies import TrustedProxies
from tests.testkit.certificates import Authority, person
from tests.unit.http.fake_service import Answer, FakeService, Names, RawHeaders, send

AUTHORITY = Authority()
BOB = AUTHORITY.sign(person("bob"))
OTHER = AUTHORITY.sign(person("mallory"))
HERE = TrustedProxies((ip_network("127.0.0.1"),))
ELSEWHERE = TrustedProxies((ip_network("10.0.0.0/8"),))
MAPPING = PrincipalMapping("RULE:^CN=(.*?),.*$/$1/")


def sequence(der: bytes) -> str:
    return f":{base64.b64encode(der).decode()}:"


def envoys(pem: str) -> str:
    return f'Cert="{quote(pem)}"'


GOOD = sequence(BOB.der)
XFCC = envoys(BOB.pem)
ENCODED = GOOD.strip(":")
DIGEST = hashlib.sha256(BOB.der).hexdigest()


class Proxied:
    """The service behind a proxy at this address, or at another; it believes one header."""

    def __init__(
        self, proxies: TrustedProxies, header: ClientCertHeader, *, takes_tokens: bool = True
    ) -> None:
        self.service = FakeService()
        method = ProxyCertificate(header, ClientCertificates(MAPPING))
        state = self.service.application.state
        methods = AuthenticatorChain([Names(), method] if takes_tokens else [method])
        state.services = replace(state.services, authenticator=methods, proxies=proxies)

    async def get(self, *headers: tuple[str, str]) -> Answer:
        raw: RawHeaders = [(name.lower().encode(), value.encode()) for name, value in headers]
        return await send(self.service.app, "GET", "/quotas", headers=raw)
