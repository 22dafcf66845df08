"""Callers with certificates, over TLS and through a proxy; the judge is a broker with TLS."""

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from cryptography.x509.oid import NameOID

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow
from tests.testkit.authorization import HERE, NOBODY, Verdict, judgement
from tests.testkit.certificates import ORGANIZATION, Authority, IssuedCertificate, Subject, person
from tests.testkit.http import problem_of
from tests.testkit.kafka import MAPPING_RULES
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import (
    DEADLINE_S,
    RunningService,
    acl,
    running_service,
    transport_from,
)

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    folder = tmp_path_factory.mktemp("certified")
    (folder / "authority.pem").write_text(authority.own.pem)
    authority.sign(((NameOID.COMMON_NAME, "server"),), host=HERE).write(folder / "server.pem")
    return folder


@pytest.fixture(scope="module")
def people(authority: Authority) -> dict[str, IssuedCertificate]:
    return {name: authority.sign(subject) for name, (subject, _, _) in PEOPLE.items()}


@pytest.fixture(scope="module")
def judge(broker: LocalKafka) -> LocalKafka:
    """The broker of the run, whose SSL listener takes the same certificates by the same rules."""
    allow(broker, *(acl(user, *rest) for _, user, rights in PEOPLE.values() for rest in rights))
    allow(broker, acl("mallory", "ALL", "ALLOW", FAR))
    return broker


@pytest.fixture(scope="module")
def service(judge: LocalKafka, postgres: LocalPostgres, folder: Path) -> Iterator[RunningService]:
    """A service with a plain port and a TLS port, behind a proxy for some of its callers."""
    _, service_url = migrated_database(postgres, "certified")
    settings = {
        "tls_port": "0",
        "tls_cert_file": str(folder / "server.pem"),
        "tls_client_ca_file": str(folder / "authority.pem"),
        "ssl_principal_mapping_rules": MAPPING_RULES,
        "trusted_proxies": f"{PROXY},10.0.0.0/8",
        "forwarded_header": "x-forwarded-for",
    }
    with running_service(folder, judge.bootstrap_servers, service_url, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def callers(service: RunningService, folder: Path) -> Callers:
    return Callers(service, folder)


def verdict_of(client: httpx.Client) -> Verdict:
    described = client.get("/quotas", params={"filter": f"user={NOBODY}"})
    alteration = {"entity": {"user": NOBODY}, "ops": [{"key": "producer_byte_rate", "value": 1024}]}
    body = {"validate_only": True, "alterations": [alteration]}
    altered = client.post("/quotas/alterations", json=body)
    statuses = {200: True, 403: False}
    return Verdict(statuses[described.status_code], statuses[altered.status_code])


def test_the_service_decides_as_the_broker_does_about_the_same_certificate(
    judge: LocalKafka,
    callers: Callers,
    people: dict[str, IssuedCertificate],
    subtests: pytest.Subtests,
):
    for name, certificate in people.items():
        with subtests.test(name=name):
            context = callers.context(certificate)
            with CertifiedPrincipal(judge.address("SSL"), context) as broker:
                expected = judgement(broker)
            with callers.over_tls(certificate) as direct:
                assert verdict_of(direct) == expected


def test_the_audit_log_names_the_caller_as_the_broker_would(
    service: RunningService,
    callers: Callers,
    people: dict[str, IssuedCertificate],
    subtests: pytest.Subtests,
):
    for name, (_, user, _) in PEOPLE.items():
        with subtests.test(name=name):
            with callers.over_tls(people[name]) as direct:
                verdict_of(direct)
            query = {"actor": f"User:{user}", "page_size": "50"}
            answer = service.api("auditor").get("/audit", params=query)
            rows = {(row["principal"], row["authentication"]) for row in answer.json()["rows"]}
            assert rows == {(f"User:{user}", "client-certificate")}


def test_the_host_of_a_rule_is_the_caller_s_and_not_the_proxy_s(
    service: RunningService,
):
    with httpx.Client(
        base_url=service.url,
        headers={
            "Authorization": "Bearer mallory",
            "X-Forwarded-For": f"192.0.2.9, {FAR}, 10.1.2.3",
        },
        transport=transport_from(PROXY),
        timeout=DEADLINE_S,
    ) as client:
        assert verdict_of(client) == Verdict(describe=True, alter=True)
    query = {"actor": "User:mallory", "page_size": "1"}
    (row,) = service.api("auditor").get("/audit", params=query).json()["rows"]
    assert row["client_address"] == FAR


ON_THE_WIRE: Final = {
    "as it should be": "Client-Cert: {}\r\n",
    "without a blank": "Client-Cert:{}\r\n",
    "in capitals": "CLIENT-CERT: {}\r\n",
    "with an underscore": "client_cert: {}\r\n",
    "folded": "Client-Cert:\r\n {}\r\n",
    "folded into another": "X-A: b\r\n Client-Cert: {}\r\n",
    "a blank before the colon": "Client-Cert : {}\r\n",
    "a tab before the colon": "Client-Cert\t: {}\r\n",
    "a blank before the name": " Client-Cert: {}\r\n",
    "after a bare line feed": "X-A: b\nClient-Cert: {}\r\n",
    "after a bare carriage return": "X-A: b\rClient-Cert: {}\r\n",
    "with a NUL": "Client-Cert: {}\0\r\n",
    "with a NUL in its name": "Client-Cert\0: {}\r\n",
    "named by Connection": "Connection: Client-Cert\r\nClient-Cert: {}\r\n",
}


def test_no_spelling_of_the_header_is_accepted_from_a_caller(
    service: RunningService, people: dict[str, IssuedCertificate], subtests: pytest.Subtests
):
    certificate = f":{base64.b64encode(people['alterer'].der).decode()}:"
    for name, header in ON_THE_WIRE.items():
        with subtests.test(name=name):
            lines = f"Host: {HERE}\r\n{header.format(certificate)}"
            request = f"GET /quotas HTTP/1.1\r\n{lines}\r\n"
            port = int(service.environ["QUOTAS_PORT"])
            with closing(socket.create_connection((HERE, port), DEADLINE_S)) as caller:
                caller.sendall(request.encode())
                assert caller.recv(12) == b"HTTP/1.1 400"


def test_a_certificate_serves_every_request_of_its_connection(
    callers: Callers, people: dict[str, IssuedCertificate]
):
    with callers.over_tls(people["alterer"]) as client:
        assert [client.get("/quotas").status_code for _ in range(3)] == [200] * 3


def test_without_a_certificate_a_token_is_good_on_the_same_port(
    judge: LocalKafka, callers: Callers
):
    with callers.over_tls() as client:
        problem = problem_of(client.get("/quotas"), 401)
        assert problem["code"] == "unauthenticated"
        assert "certificate" in problem["detail"]
        token = {"Authorization": "Bearer root"}
        assert client.get("/quotas", headers=token).status_code == 200


def test_a_certificate_and_a_token_are_one_too_many(
    callers: Callers, people: dict[str, IssuedCertificate]
):
    token = {"Authorization": "Bearer root"}
    with callers.over_tls(people["alterer"], headers=token) as client:
        assert problem_of(client.get("/quotas"), 400)["code"] == "several-credentials"


@pytest.mark.parametrize("name", ["unknown", "expired", "of its own"])
def test_a_certificate_that_nobody_vouches_for_ends_the_connection(
    callers: Callers, authority: Authority, name: str
):
    past = datetime.now(UTC) - timedelta(hours=1)
    certificate = {
        "unknown": Authority().sign(person("alterer")),
        "expired": authority.sign(person("alterer"), ends=past),
        "of its own": Authority("alterer").own,
    }[name]
    with callers.over_tls(certificate) as client, pytest.raises(httpx.TransportError):
        client.get("/quotas")
