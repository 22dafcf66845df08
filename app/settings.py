"""Settings: environment variables ``QUOTAS_…``, read once; a misspelt one stops the start-up."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

PREFIX: Final = "QUOTAS_"

LOCAL_ONLY: Final = frozenset({"QUOTAS_LOCAL_DIR"})
"""Variables of ``dev`` that a service ignores."""


class SettingsError(Exception):
    """The settings cannot be used; the text names each variable and says why."""


class Mode(StrEnum):
    """In development an unsafe setting is a warning, in production it stops the start-up."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """From which severity on a line is written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""So many a second; 0 for no limit, in development only."""

Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseModel):
    """Each field is the environment variable ``QUOTAS_<FIELD>`` in upper case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8080, description="Port to listen on.")
    mode: Mode = Field(Mode.PRODUCTION, description="`production` or `development`.")
    log_format: LogFormat = Field(LogFormat.JSON, description="`json` or `text`.")
    log_level: LogLevel = Field(LogLevel.INFO, description="`DEBUG`, `INFO`, `WARNING` or `ERROR`.")

    kafka_bootstrap_servers: str = Field(description="`host:port,…` of the brokers.")
    kafka_security_protocol: str = Field(
        "PLAINTEXT", description="`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."
    )
    kafka_sasl_mechanism: str | None = Field(
        None, description="`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."
    )
    kafka_sasl_username: str | None = Field(None, description="The service's own account.")
    kafka_sasl_password: SecretStr | None = Field(None, description="Its password.")
    kafka_ssl_ca_file: Path | None = Field(None, description="PEM file of trusted authorities.")
    kafka_ssl_cert_file: Path | None = Field(None, description="PEM file of a client certificate.")
    kafka_ssl_key_file: Path | None = Field(None, description="PEM file of its key.")

    database_url: SecretStr = Field(description="`postgresql://…`, the service's role.")
    migration_database_url: SecretStr | None = Field(
        None, description="The owner of the tables, for `migrate`; default: `QUOTAS_DATABASE_URL`."
    )
    tokens_file: Path | None = Field(
        None,
        description="JSON list of `{principal, token_sha256, expires_at}`; this or an issuer is "
        "needed to serve.",
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
    super_users: str = Field(
        "", description="`User:admin;User:ops`; mirrors the broker's `super.users`."
    )
    allow_everyone_if_no_acl_found: bool = Field(
        False, description="Mirrors the broker's `allow.everyone.if.no.acl.found`."
    )
    auditors: str = Field("", description="`User:auditor;…`: who may read every audit row.")
    insecure_allow_without_authorizer: bool = Field(
        False, description="Serve everybody on a cluster without an authorizer."
    )
    shutdown_grace_s: Annotated[float, Field(ge=0, le=300)] = Field(
        20.0, description="How long a stop waits for running alterations, in seconds."
    )

    shutdown_delay_s: Annotated[float, Field(ge=0, le=60)] = Field(
        5.0,
        description="How long `/readyz` says 503 before a stop begins, in seconds; "
        "none in development.",
    )

    reads_per_s: Rate = Field(
        20_000.0, description="Reads of one principal a second; twice as many at once."
    )
    alterations_per_s: Rate = Field(
        5_000.0, description="Alterations of one principal a second; twice as many at once."
    )
    requests_at_once: Annotated[int, Field(ge=0)] = Field(
        256, description="Requests of one principal that are worked on at a time."
    )
    authentication_failures_per_s: Rate = Field(
        500.0,
        description="Bad credentials from one address a second; twenty times as many at once.",
    )
    max_connections: Annotated[int, Field(ge=1)] = Field(
        1000, description="Connections at a time; one more is answered 503."
    )

    drift_interval_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        60.0, description="How often the cluster is compared with the audit log, in seconds."
    )
    test_failpoint: str = Field(
        "",
        description="For tests, in development only: kill or freeze at a point of an alteration.",
    )
    test_final_after_s: Annotated[float, Field(ge=1, le=95)] = Field(
        95.0, description="For tests, in development only: when recovery is final, in seconds."
    )

    @property
    def stop_delay_s(self) -> float:
        """How long a stop is announced before it begins, in seconds."""
        return self.shutdown_delay_s if self.mode is Mode.PRODUCTION else 0.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings.

        Raises:
            SettingsError: Something is missing, misspelt or of the wrong form.
        """
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and name not in LOCAL_ONLY and value != ""
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(_sentences(error)) from None

    @property
    def owner_database_url(self) -> str:
        """The URL that ``migrate`` connects with."""
        return (self.migration_database_url or self.database_url).get_secret_value()


_WORDS: Final = {
    "extra_forbidden": "is not a setting of this service; check its spelling",
    "missing": "is needed and not set",
}


def _sentences(error: ValidationError) -> str:
    """Name each variable; values are never repeated, they may be secrets."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        name = PREFIX + str(problem["loc"][0]).upper()
        lines.append(f"{name} {_WORDS.get(problem['type'], problem['msg'])}.")
    return "\n".join(sorted(lines))
