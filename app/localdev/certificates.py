"""An authority of this machine's own, the service's certificate, and one of an example caller."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509

from app.localdev.local_directory import LocalDevError, write_private
from app.localdev.processes import HOST, free_ports, is_free

RULES: Final = "RULE:^CN=([^,]+),.*$/$1/,DEFAULT"
"""The example caller's certificate is as good as the token of the principal of that name."""

_ORGANIZATION: Final = "kafka-quota-service"
_CALLER: Final = "alice"
_USUAL_PORT: Final = 8443
_VALID_FOR: Final = timedelta(days=365)
_RENEWED_BEFORE: Final = timedelta(days=30)


@dataclass(frozen=True)
class LocalCertificates:
    """PEM files; the service's and the caller's hold a key, too.

    Attributes:
        authority: What a caller trusts.
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
    issuer = trustme.CA(
        organization_name=_ORGANIZATION, organization_unit_name="The authority of this machine"
    )
    write_private(authority, issuer.cert_pem.bytes().decode())
    names = {server: ("localhost", ("localhost", HOST, "::1")), caller: (_CALLER, ())}
    for path, (common_name, identities) in names.items():
        issued = issuer.issue_cert(
            *identities,
            common_name=common_name,
            organization_name=_ORGANIZATION,
            not_after=datetime.now(UTC) + _VALID_FOR,
        )
        write_private(path, issued.private_key_and_cert_chain_pem.bytes().decode())
