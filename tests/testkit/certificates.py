"""Certificates for tests: an authority, and what it signs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Certificates and revocation lists (RFC 5280, 4.2.1.3), the sixth and seventh of nine uses.
_SIGNS = x509.KeyUsage(*[False] * 5, True, True, False, False)
Key = ec.EllipticCurvePrivateKey
Subject = Sequence[tuple[x509.ObjectIdentifier, str]]

ORGANIZATION: Subject = ((NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Example"))


def person(name: str) -> Subject:
    """Return a subject that Java writes as ``CN=name,O=Example,C=DE``."""
    return (*ORGANIZATION, (NameOID.COMMON_NAME, name))


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate and the key that belongs to it."""

    certificate: x509.Certificate
    key: Key

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, path: Path, password: str | None = None) -> Path:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )
        path.write_bytes(self.pem.encode() + key)
        path.chmod(0o600)
        return path


@dataclass
class Authority:
    """Signs certificates; ``begins`` and ``ends`` are of its own."""

    name: str = "authority"
    begins: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(days=1))
    ends: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(days=1))

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(((NameOID.COMMON_NAME, self.name),))
        builder = self._builder(self._name, self._key, self.ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(key_id, False).add_extension(_SIGNS, True)
        self.own = IssuedCertificate(builder.sign(self._key, hashes.SHA256()), self._key)

    def sign(
        self,
        subject: Subject,
        *,
        ends: datetime | None = None,
        host: str | None = None,
    ) -> IssuedCertificate:
        """Return a certificate of that subject, good as long as the authority's own."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(subject)
        builder = self._builder(name, key, ends or self.ends)
        if host is not None:
            address = x509.IPAddress(ip_address(host))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), False)
        return IssuedCertificate(builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: Key, ends: datetime) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).not_valid_before(self.begins)
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signed_by, critical=False)
        return builder.not_valid_after(ends).serial_number(x509.random_serial_number())


def _name(subject: Subject) -> x509.Name:
    return x509.Name([x509.NameAttribute(type_, value) for type_, value in subject])
