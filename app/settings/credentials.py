"""Which tokens are accepted."""

from pathlib import Path

from pydantic import Field

from app.settings.values import Fields


class Credentials(Fields):
    """Which tokens are accepted."""

    tokens_file: Path | None = Field(
        None,
        description="JSON list of `{principal, token_sha256, expires_at}`; this or another "
        "credential is needed to serve.",
    )
    oidc_issuer: str | None = Field(
        None, description="`https://…` of an identity provider whose tokens are accepted."
    )
    oidc_audience: str | None = Field(
        None, description="What its tokens must name as audience; needed with an issuer."
    )
    oidc_jwks_url: str | None = Field(
        None, description="`https://…` of its keys; default: as its discovery document says."
    )
    oidc_algorithms: str = Field(
        "RS256,PS256,ES256,EdDSA", description="The signatures that are accepted."
    )
    oidc_principal_claim: str = Field(
        "sub", description="The claim whose value is the user name of the principal."
    )
    oidc_ca_file: Path | None = Field(
        None, description="PEM file of authorities trusted for the issuer; default: the usual ones."
    )
