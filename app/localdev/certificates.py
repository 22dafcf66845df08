"""An authority of this machine's own, the service's certificate, and one of an example caller."""

import ipaddress
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from app.localdev.local_directory import LocalDevError, write_private
from app.localdev.processes import HOST, free_ports, is_free

RULES: Final = "RULE:^CN=([^,]+),.*$/$1/,DEFAULT"
"""The example caller's certificate is as good as the token of the principal of that name."""

SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""What the certificate of an authority is for (RFC 5280, section 4.2.1.3)."""

_CALLER: Final = "alice"
_USUAL_PORT: Final = 8443
_VALID_FOR: Final = timedelta(days=365)
_RENEWED_BEFORE: Final = timedelta(days=30)
_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class LocalCertificates:
    """PEM files; the service's and the caller's hold a key, too.

    Attributes:
        authority: Whom a caller trusts.
        server: The service's.
        caller: The example caller's.
        port: Where the service speaks TLS.
    """

    authority: Path
    server: Path
    caller: Path
    port: int

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of a service that uses them."""
        return {
            "QUOTAS_TLS_PORT": str(self.port),
            "QUOTAS_TLS_CERT_FILE": str(self.server),
            "QUOTAS_TLS_CLIENT_CA_FILE": str(self.authority),
            "QUOTAS_SSL_PRINCIPAL_MAPPING_RULES": RULES,
        }

    def curl(self, path: str) -> str:
        """Return a curl line with the caller's certificate."""
        files = (
            f"--cacert {shlex.quote(str(self.authority))} --cert {shlex.quote(str(self.caller))}"
        )
        return f"curl -sS {files} {shlex.quote(f'https://localhost:{self.port}{path}')}"


def local_certificates(directory: Path, environ: Mapping[str, str]) -> LocalCertificates | None:
    """Make what is missing or expires soon; null where the environment has a certificate already.

    The port is ``QUOTAS_TLS_PORT``; without it 8443 where that is free, or else another.

    Raises:
        LocalDevError: The environment's certificate would leave no port for plain HTTP.
    """
    wanted = environ.get("QUOTAS_TLS_PORT", "")
    if environ.get("QUOTAS_TLS_CERT_FILE"):
        if not wanted:
            raise LocalDevError("QUOTAS_TLS_CERT_FILE needs QUOTAS_TLS_PORT here: set it, too.")
        return None
    folder = directory / "tls"
    folder.mkdir(mode=0o700, exist_ok=True)
    names = ("authority.pem", "service.pem", f"{_CALLER}.pem")
    authority, server, caller = (folder / name for name in names)
    if not all(_is_good(path) for path in (authority, server, caller)):
        _make(authority, server, caller)
    port = int(wanted) if wanted.isdecimal() else _USUAL_PORT
    if not wanted and not is_free(port):
        (port,) = free_ports(1)
    return LocalCertificates(authority, server, caller, port)


def _is_good(path: Path) -> bool:
    if not path.exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return certificate.not_valid_after_utc > datetime.now(UTC) + _RENEWED_BEFORE


def _make(authority: Path, server: Path, caller: Path) -> None:
    """Write all three anew; the authority's key is forgotten."""
    key = _key()
    issuer = _name("The authority of this machine")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(issuer, issuer, key, key).add_extension(constraints, critical=True)
    builder = builder.add_extension(SIGNS_CERTIFICATES, critical=True)
    write_private(authority, _pem(builder.sign(key, hashes.SHA256())))
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    addressed = x509.SubjectAlternativeName([*names, x509.IPAddress(ipaddress.ip_address("::1"))])
    _write(server, "localhost", addressed, ExtendedKeyUsageOID.SERVER_AUTH, (issuer, key))
    _write(caller, _CALLER, None, ExtendedKeyUsageOID.CLIENT_AUTH, (issuer, key))


def _write(
    path: Path,
    common_name: str,
    names: x509.SubjectAlternativeName | None,
    usage: x509.ObjectIdentifier,
    issuer: tuple[x509.Name, _Key],
) -> None:
    key = _key()
    builder = _builder(_name(common_name), issuer[0], key, issuer[1])
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_private(path, _pem(builder.sign(issuer[1], hashes.SHA256())) + private.decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, signing: _Key
) -> x509.CertificateBuilder:
    """Return what all three have in common. Source: RFC 5280 4.2.1.1, 4.2.1.2."""
    now = datetime.now(UTC)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signed_by, critical=False)
    )


def _name(common_name: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kafka-quota-service")
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key() -> _Key:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
