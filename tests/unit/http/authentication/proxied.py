"""The service behind a proxy, and headers that name a certificate."""

import base64
from dataclasses import replace
from ipaddress import ip_network
from urllib.parse import quote

from app.http.authentication.proxies import TrustedProxies
from tests.testkit.certificates import Authority, person
from tests.unit.http.fake_service import Answer, FakeService, RawHeaders, send

BOB = Authority().sign(person("bob"))
HERE = TrustedProxies((ip_network("127.0.0.1"),))
ELSEWHERE = TrustedProxies((ip_network("10.0.0.0/8"),))

RFC_9440 = f":{base64.b64encode(BOB.der).decode()}:"
XFCC = f'Cert="{quote(BOB.pem)}"'


class Proxied:
    """The service behind a proxy at this address, or at another."""

    def __init__(self, proxies: TrustedProxies) -> None:
        self.service = FakeService()
        self.service.services = replace(self.service.services, proxies=proxies)

    async def get(self, *headers: tuple[str, str]) -> Answer:
        raw: RawHeaders = [(name.lower().encode(), value.encode()) for name, value in headers]
        return await send(self.service.app, "GET", "/quotas", headers=raw)
