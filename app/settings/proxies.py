"""Which proxies are believed, and what."""

from pathlib import Path

from pydantic import Field

from app.http.authentication.client_cert_header import ClientCertHeader
from app.http.authentication.forwarded import ForwardedHeader
from app.settings.values import Fields


class Proxies(Fields):
    """Which proxies are believed, and what."""

    trusted_proxies: str = Field(
        "", description="`10.0.0.5,10.1.0.0/16`: the proxies whose headers are believed."
    )
    forwarded_header: ForwardedHeader = Field(
        ForwardedHeader.NONE,
        description="Where they note the caller's address: `forwarded`, `x-forwarded-for` or "
        "`none`.",
    )
    client_cert_header: ClientCertHeader = Field(
        ClientCertHeader.NONE,
        description="Where they put the caller's certificate: `client-cert` (RFC 9440), `xfcc` "
        "(Envoy) or `none`.",
    )
    client_cert_issuers_file: Path | None = Field(
        None,
        description="PEM file of authorities, one of which must have signed what they put there; "
        "default: the proxy has seen to it.",
    )
