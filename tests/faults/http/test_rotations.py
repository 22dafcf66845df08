"""Tokens, keys and certificates are replaced while callers call: whoever has a good one passes."""

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any, Final

import httpx
import pytest
from cryptography.x509.oid import NameOID

from tests.faults.http.conftest import Serve
from tests.testkit.authorization import HERE
from tests.testkit.certificates import Authority, IssuedCertificate, person
from tests.testkit.event_loops import Silent, served
from tests.testkit.http import problem_of
from tests.testkit.outages import ALTERATIONS, ask, change
from tests.testkit.patience import DEADLINE_S, wait_until
from tests.testkit.service import PLAIN_HTTP, RunningService
from tests.testkit.sizes import size
from tests.unit.http.authentication.tokens import (
    AUDIENCE,
    OTHER_RSA_KEY,
    RSA_KEY,
    claims,
    published,
    signed,
)

ROTATIONS: Final = size(1, 4)


def moved(path: Path, text: str) -> None:
    """Write beside it and move, as Kubernetes and ``install`` do."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.chmod(0o600)
    beside.replace(path)


def truncated(path: Path, text: str) -> None:
    """Empty it, write half, and then the rest: whoever looks in between finds no JSON."""
    with path.open("w") as file:
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            file.write(half)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def statuses_of(ask_once: Callable[[], httpx.Response]) -> Iterator[set[int]]:
    """Call without a pause until the block ends; what was answered is complete then."""
    statuses: set[int] = set()
    enough = Event()

    def call() -> None:
        while not enough.is_set():
            statuses.add(ask_once().status_code)

    with ThreadPoolExecutor() as pool:
        calls = pool.submit(call)
        try:
            yield statuses
        finally:
            enough.set()
        calls.result()


@pytest.mark.parametrize("replaced", [moved, truncated])
def test_a_replaced_tokens_file_refuses_who_is_gone_and_nobody_else(
    serve: Serve, replaced: Callable[[Path, str], None]
) -> None:
    service = serve()
    path = Path(service.environ["QUOTAS_TOKENS_FILE"])
    both = path.read_text()
    alone = json.dumps([each for each in json.loads(both) if each["principal"] != "User:bob"])
    with statuses_of(lambda: ask(service, "GET", "/quotas?filter=user=a")) as statuses:
        for _ in range(ROTATIONS):
            replaced(path, alone)
            wait_until(lambda: status(service) == 401, "who is gone still passes")
            replaced(path, both)
            wait_until(lambda: status(service) == 200, "who is back is still refused")
        path.write_text(both[:-9])
        wait_until(lambda: "tokens read before stay good" in service.log_path.read_text())
        assert status(service) == 200
    assert statuses == {200}


def status(service: RunningService) -> int:
    answer = ask(service, "GET", "/quotas?filter=user=b", principal="bob")
    return answer.status_code


BUNDLED: Final = {"tls_port": "0", "ssl_principal_mapping_rules": "RULE:^CN=([^,]+),.*$/$1/"}


class Caller:
    """Calls over TLS: with a certificate of an authority, and no trust in any other."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        trusted = folder / f"{authority.name}.pem"
        trusted.write_text(authority.own.pem)
        self.context = ssl.create_default_context(cafile=str(trusted))
        own = authority.sign(person("alice")).write(folder / f"alice-{authority.name}.pem")
        self.context.load_cert_chain(own)

    def client(self, service: RunningService) -> httpx.Client:
        return httpx.Client(base_url=service.tls_url, verify=self.context, timeout=DEADLINE_S)

    def is_served(self, service: RunningService) -> bool:
        """Tell whether both sides accept each other."""
        with self.client(service) as client:
            try:
                answer = client.get("/me")
            except httpx.TransportError:
                return False
        assert answer.json()["principal"] == "User:alice"
        return True


def test_each_restart_has_the_certificate_and_the_authorities_of_its_files(
    serve: Serve, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    callers = Caller(tmp_path, old), Caller(tmp_path, new)
    own, authorities = tmp_path / "server.pem", tmp_path / "people.pem"

    def write(issuer: Authority, *trusted: Authority) -> None:
        certificate = issuer.sign(((NameOID.COMMON_NAME, "server"),), host=HERE)
        moved(own, pem_of(certificate, tmp_path))
        moved(authorities, "".join(authority.own.pem for authority in trusted))

    def served_callers() -> list[bool]:
        return [caller.is_served(service) for caller in callers]

    write(old, old)
    service = serve(tls_cert_file=str(own), tls_client_ca_file=str(authorities), **BUNDLED)
    assert served_callers() == [True, False]
    write(new, old, new)
    assert served_callers() == [True, False], "files are read at the start"
    applied = alter_through_a_stop(service, callers[0])
    service.start()
    assert served_callers() == [False, True]
    for alteration_id in applied:
        record = ask(service, "GET", f"{ALTERATIONS}/{alteration_id}", principal="auditor").json()
        assert record["outcome"] == "applied"
    distrusting = Caller(tmp_path, new)
    distrusting.context.load_cert_chain(tmp_path / "alice-old.pem")
    assert distrusting.is_served(service), "both authorities are trusted"
    write(new, new)
    assert service.stop() == 0
    service.start()
    assert served_callers() == [False, True]
    assert not distrusting.is_served(service)


def pem_of(certificate: IssuedCertificate, folder: Path) -> str:
    return certificate.write(folder / "written.pem").read_text()


def alter_through_a_stop(service: RunningService, caller: Caller) -> list[str]:
    """Alter over one connection until the service has stopped; return what was applied."""
    applied: list[str] = []
    with ThreadPoolExecutor() as pool, closing(caller.client(service)) as client:

        def alter() -> None:
            while True:
                try:
                    answer = client.post(ALTERATIONS, json=change("rotated"))
                except httpx.TransportError:
                    return
                assert answer.status_code == 200, answer.text
                applied.append(answer.json()["alteration_id"])

        altering = pool.submit(alter)
        wait_until(lambda: applied or altering.done(), "nothing is applied")
        assert service.stop() == 0
        altering.result()
    assert applied
    return applied


REFRESHED_WITHIN_S: Final = 2 * DEADLINE_S
"""The provider is asked at most once in 30 s."""


class IdentityProvider:
    """Publishes the keys that it has at present; ``is_up`` is whether it answers."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.is_up = True
        self.url = ""

    def handler(self, *arguments: Any) -> BaseHTTPRequestHandler:
        provider = self

        class Handler(Silent, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                discovery = {"issuer": provider.url, "jwks_uri": f"{provider.url}/keys"}
                document = {"keys": provider.keys} if self.path == "/keys" else discovery
                self.send_response(200 if provider.is_up else 500)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

        return Handler(*arguments)

    def token(self, key: Any, key_id: str) -> str:
        now = int(time.time())
        payload = claims(iss=self.url, exp=now + 3600, iat=now, nbf=now)
        return signed(payload, key=key, kid=key_id)


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()
    with served(provider.handler) as provider.url:
        yield provider


@pytest.mark.long
def test_a_provider_s_new_key_is_found_and_its_old_one_is_dropped(
    serve: Serve, provider: IdentityProvider
) -> None:
    first, second = (
        published(RSA_KEY, "first", "RS256"),
        published(OTHER_RSA_KEY, "second", "RS256"),
    )
    old, new = provider.token(RSA_KEY, "first"), provider.token(OTHER_RSA_KEY, "second")
    unknown = provider.token(OTHER_RSA_KEY, "unknown")
    provider.keys = [first]
    service = serve(oidc_issuer=provider.url, oidc_audience=AUDIENCE)

    def call(token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{service.url}/quotas?filter=user=a"
        return httpx.get(url, headers=headers, timeout=DEADLINE_S, verify=PLAIN_HTTP)

    def until(token: str, status: int) -> None:
        what = f"not answered {status}"
        wait_until(lambda: call(token).status_code == status, what, REFRESHED_WITHIN_S)

    assert call(old).status_code == 200
    with statuses_of(lambda: call(old)) as statuses:
        provider.keys = [first, second]
        until(new, 200)
    assert statuses == {200}
    with statuses_of(lambda: call(new)) as statuses:
        provider.keys = [second]

        def is_dropped() -> bool:
            """Ask for a key that nobody has: whoever names one has the keys read again."""
            problem_of(call(unknown), 401)
            return call(old).status_code == 401

        wait_until(is_dropped, "the old key still counts", REFRESHED_WITHIN_S)
        provider.is_up = False
        until(unknown, 503)
    assert statuses == {200}
    assert problem_of(call(unknown), 503)["code"] == "identity-provider-unavailable"
    provider.is_up = True
    until(unknown, 401)
