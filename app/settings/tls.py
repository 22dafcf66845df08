"""TLS with callers, and whose their certificates are."""

from pathlib import Path

from pydantic import Field

from app.settings.values import Fields, Port


class Tls(Fields):
    """TLS with callers, and whose their certificates are."""

    tls_cert_file: Path | None = Field(
        None, description="PEM file of this server's certificate; with it `QUOTAS_PORT` speaks TLS."
    )
    tls_key_file: Path | None = Field(
        None, description="PEM file of its key; default: in the same file."
    )
    tls_port: Port | None = Field(
        None, description="A port of its own for TLS; `QUOTAS_PORT` then speaks plain HTTP."
    )
    tls_client_ca_file: Path | None = Field(
        None,
        description="PEM file of authorities: a client certificate that they signed is a "
        "credential.",
    )
    ssl_principal_mapping_rules: str = Field(
        "DEFAULT",
        description="From a certificate's subject to the user; mirrors the broker's "
        "`ssl.principal.mapping.rules`.",
    )

    @property
    def has_plain_listener(self) -> bool:
        """Whether a port speaks plain HTTP."""
        return self.tls_cert_file is None or self.tls_port is not None
