"""The certificates of `dev`: made once, good for the service and for its example caller."""

import shlex
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from app.authenticators import tls_context
from app.http.authentication.certificates import ClientCertificates
from app.http.authentication.principal_mapping import PrincipalMapping
from app.localdev import certificates
from app.localdev.certificates import LocalCertificates, local_certificates
from app.localdev.local_directory import LocalDevError
from app.localdev.processes import free_ports
from app.settings import Settings

NEEDED = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@127.0.0.1:1/quotas",
}


@pytest.fixture
def made(tmp_path: Path) -> LocalCertificates:
    local = local_certificates(tmp_path, {})
    assert local is not None
    return local


def test_the_service_takes_them(made: LocalCertificates):
    context = tls_context(Settings.from_env({**NEEDED, **made.environment}))
    assert context is not None
    assert context.get_ca_certs()[0]["subject"][1][0][1] == "The authority of this machine"


def test_the_caller_is_alice(made: LocalCertificates):
    caller = x509.load_pem_x509_certificate(made.caller.read_bytes())
    (issuer,) = x509.load_pem_x509_certificates(made.authority.read_bytes())
    rules = PrincipalMapping(made.environment["QUOTAS_SSL_PRINCIPAL_MAPPING_RULES"])
    judge = ClientCertificates(rules, [issuer])
    assert judge.principal(caller.public_bytes(Encoding.DER)) == "User:alice"


def test_nobody_else_can_read_a_key(made: LocalCertificates):
    assert b"PRIVATE KEY" not in made.authority.read_bytes()
    for path in (made.server, made.caller):
        assert b"PRIVATE KEY" in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


def test_they_are_made_once(made: LocalCertificates, tmp_path: Path):
    before = made.caller.read_bytes()
    assert local_certificates(tmp_path, {}) is not None
    assert made.caller.read_bytes() == before


def test_they_are_made_anew_before_they_expire(
    made: LocalCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = made.caller.read_bytes()
    monkeypatch.setattr(certificates, "_RENEWED_BEFORE", timedelta(days=366))
    local_certificates(tmp_path, {})
    assert made.caller.read_bytes() != before
    renewed = x509.load_pem_x509_certificate(made.caller.read_bytes())
    assert renewed.not_valid_after_utc > datetime.now(UTC) + timedelta(days=360)


def test_the_curl_line_names_the_files(made: LocalCertificates):
    words = shlex.split(made.curl("/quotas?filter=user=alice"))
    assert words[:2] == ["curl", "-sS"]
    assert words[-1] == f"https://localhost:{made.port}/quotas?filter=user=alice"
    assert {str(made.authority), str(made.caller)} <= set(words)


def test_a_taken_port_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        usual = taken.getsockname()[1]
        monkeypatch.setattr(certificates, "_USUAL_PORT", usual)
        made = local_certificates(tmp_path, {})
    assert made is not None
    assert made.port != usual


def test_the_environment_s_port_is_used(tmp_path: Path):
    (port,) = free_ports(1)
    made = local_certificates(tmp_path, {"QUOTAS_TLS_PORT": str(port)})
    assert made is not None
    assert made.port == port


def test_the_environment_s_certificate_is_left_alone(tmp_path: Path):
    environ = {"QUOTAS_TLS_CERT_FILE": "/c.pem"}
    assert local_certificates(tmp_path, {**environ, "QUOTAS_TLS_PORT": "8443"}) is None
    with pytest.raises(LocalDevError, match="QUOTAS_TLS_PORT"):
        local_certificates(tmp_path, environ)
