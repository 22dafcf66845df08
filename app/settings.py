"""Settings: environment variables ``QUOTAS_…``, each read once into the type that is used."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from app.http.authentication.proxies import ForwardedHeader
from app.kafka.config import KafkaSettings, SaslMechanism, SecurityProtocol
from app.service.ports.alterations import Failpoints
from app.service.recovery import FINAL_AFTER_S
from app.service.runtime.clock import Patience
from app.setting_types import (
    PREFIX,
    Algorithms,
    AuthenticatorKind,
    AuthenticatorKinds,
    BootstrapServers,
    ConfidentialUrl,
    DatabaseUrl,
    LogFormat,
    MappingRules,
    Networks,
    Origins,
    Port,
    PrincipalPrefix,
    Principals,
    Rate,
    SaslProtocol,
    Secret,
    TestFailpoint,
    TimeoutMs,
    TopicName,
    variable,
)

LOCAL_ONLY: Final = frozenset(
    {"QUOTAS_LOCAL_DIR", "QUOTAS_LOCAL_KAFKA_VERSION", "QUOTAS_PIPELINE_DATABASE_URL"}
)
"""Variables of ``dev`` and of the pipeline that a service ignores."""

SECRETS: Final = (
    "kafka_sasl_password",
    "kafka_ssl_key_password",
    "database_url",
    "migration_database_url",
    "tls_key_password",
    "events_sasl_password",
    "events_ssl_key_password",
)
"""Fields whose value may be in a file instead, which ``QUOTAS_<FIELD>_FILE`` names."""

_NO_PROXIED_CERTIFICATES: Final = (
    "No header is believed about a certificate: let callers speak TLS with this service "
    "(QUOTAS_TLS_CLIENT_CA_FILE), or have the proxy send tokens"
)

GONE: Final[Mapping[str, str]] = {
    "workers": (
        "One process is a replica: start several `kafka-quota-service serve`, each on a port or "
        "machine of its own, behind a balancer"
    ),
    "client_cert_header": _NO_PROXIED_CERTIFICATES,
    "client_cert_issuers_file": _NO_PROXIED_CERTIFICATES,
}
"""Settings of earlier versions, and what to do instead, as a sentence without its end."""

_STAND_INS: Final = {"database_url": "postgresql:///"}
"""For required settings that could not be read, while the others are."""

_ONE_OF_THEM: Final = frozenset({"kafka_bootstrap_servers", "clusters_file"})
"""Where the brokers are: one of these is needed."""


class SettingsError(Exception):
    """The settings cannot be used; the text names each variable and says why."""


class UnreadSettingError(AttributeError):
    """A setting has no value because its variable could not be read."""


class Settings(BaseModel):
    """Each field is ``QUOTAS_<FIELD>`` in upper case; docs/configuration.md lists all in order."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    # The listeners, and what this process writes.
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8080
    """Port to listen on; 0 is any free one, which the log names as `url`."""
    operations_port: Port | None = None
    """A port of its own for `/livez`, `/readyz` and `/metrics`, in plain HTTP; they are there
    alone then."""
    mode: Literal["production", "development"] = "production"
    """`production` or `development`."""
    log_format: LogFormat = LogFormat.JSON
    """`json` or `text`."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    # The brokers, and the service's own account there.
    clusters_file: Path | None = None
    """YAML file of several clusters, instead of `QUOTAS_KAFKA_…`; SIGHUP reads it again. See
    `docs/clusters.md`."""
    kafka_bootstrap_servers: BootstrapServers | None = None
    """`host:port,…` of the brokers."""
    kafka_security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    kafka_sasl_mechanism: SaslMechanism | None = None
    """`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    kafka_sasl_username: str | None = None
    """The service's own account."""
    kafka_sasl_password: Secret | None = None
    """Its password."""
    kafka_ssl_ca_file: Path | None = None
    """PEM file of trusted authorities."""
    kafka_ssl_cert_file: Path | None = None
    """PEM file of a client certificate."""
    kafka_ssl_key_file: Path | None = None
    """PEM file of its key."""
    kafka_ssl_key_password: Secret | None = None
    """The password of that key; default: it has none."""

    # The audit log.
    database_url: DatabaseUrl
    """`postgresql://…`, the service's role."""
    migration_database_url: DatabaseUrl | None = None
    """The owner of the tables, for `migrate`; default: `QUOTAS_DATABASE_URL`."""

    # Tokens.
    tokens_file: Path | None = None
    """JSON list of `{principal, token_sha256, expires_at}`; this or another credential is needed
    to serve."""
    oidc_issuer: ConfidentialUrl | None = None
    """`https://…` of an identity provider whose tokens are accepted."""
    oidc_audience: str | None = None
    """What its tokens must name as audience; needed with an issuer."""
    oidc_jwks_url: ConfidentialUrl | None = None
    """`https://…` of its keys; default: as its discovery document says."""
    oidc_algorithms: Algorithms = ("RS256", "PS256", "ES256", "EdDSA")
    """The signatures that are accepted."""
    oidc_principal_claim: str = "sub"
    """The claim whose value is the user name of the principal."""
    oidc_principal_prefix: PrincipalPrefix = ""
    """Stands before that value in the user name, so that no token names another authenticator's
    user."""
    oidc_privileged_principals: Principals = frozenset()
    """`User:alice;…`: super users and auditors that a token may name where there is no prefix."""
    oidc_page_client_id: str | None = None
    """The page's client at the issuer: public, with PKCE, its redirect URI `…/ui/signed-in`;
    default: the audience."""
    oidc_page_scope: str = "openid"
    """The scopes that the page asks for, with blanks between them."""
    oidc_ca_file: Path | None = None
    """PEM file of authorities trusted for the issuer; default: those of this
    machine."""
    authenticators: AuthenticatorKinds = ()
    """Some of `bearer`, `certificate`, `basic`, in the order in which callers
    are offered them; default: all that are configured."""

    # What no request reveals about the rights in the cluster.
    super_users: Principals = frozenset()
    """`User:admin;User:ops`; mirrors the broker's `super.users`."""
    allow_everyone_if_no_acl_found: bool = False
    """Mirrors the broker's `allow.everyone.if.no.acl.found`."""
    auditors: Principals = frozenset()
    """`User:auditor;…`: who may read every audit row."""
    insecure_allow_without_authorizer: bool = False
    """Serve everybody on a cluster without an authorizer; in development only."""

    # Limits, and how long a stop may take.
    shutdown_grace_s: Annotated[float, Field(ge=0, le=300)] = 20.0
    """How long a stop waits for running alterations, in seconds."""
    shutdown_delay_s: Annotated[float, Field(ge=0, le=60)] = 5.0
    """How long `/readyz` says 503 before a stop begins, in seconds; none in development."""
    reads_per_s: Rate = 20_000.0
    """Reads of one principal a second; twice as many at once."""
    alterations_per_s: Rate = 5_000.0
    """Alterations of one principal a second; twice as many at once."""
    requests_at_once: Annotated[int, Field(ge=0)] = 256
    """Requests of one principal that are worked on at a time, for each cluster."""
    authentication_failures_per_s: Rate = 500.0
    """Bad credentials from one address a second; bursts up to 20 times."""
    public_requests_per_s: Rate = 100.0
    """Requests of one address a second for each route without a credential; ten times as many at
    once."""
    max_connections: Annotated[int, Field(ge=1)] = 1000
    """Connections at a time, TLS handshakes included; for one more the one goes that was idle for
    longest, and where none is idle it is answered 503."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 250
    """The same for each address (IPv6: network of 64 bits) that is no trusted proxy."""
    max_handshakes: Annotated[int, Field(ge=1)] = 200
    """TLS handshakes in progress at a time; each address has a quarter of them, and each handshake
    10 s."""

    # Time-outs.
    database_connect_timeout_ms: TimeoutMs = 1000
    """How long a connection to Postgres may take, in ms."""
    database_timeout_ms: TimeoutMs = 1400
    """How long Postgres may take for a transaction before what needs it is refused, in ms; an
    outcome has twice as long, a report at least 30 s."""
    kafka_request_timeout_ms: TimeoutMs = 5000
    """How long a broker may take to answer a read, in ms; a barrier and a probe of readiness wait
    for 40 % of it, an alteration for at least 15 s."""

    # Alterations.
    drift_interval_s: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """How often the cluster is compared with the audit log, in seconds."""
    test_failpoint: TestFailpoint = Failpoints()
    """For tests, in development only: kill or freeze at a point of an alteration."""
    test_final_after_s: Annotated[float, Field(ge=1, le=95)] = FINAL_AFTER_S
    """For tests, in development only: when recovery is final, in seconds."""

    # Callers who log in at the brokers with their own user and password.
    basic_sasl_mechanism: SaslMechanism | None = None
    """`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`: accepts `Authorization: Basic` and logs in at
    the brokers with it; default: Basic is off."""
    basic_security_protocol: SaslProtocol = SecurityProtocol.SASL_SSL
    """`SASL_SSL`, or `SASL_PLAINTEXT` on this machine and in development: how such callers are
    logged in."""
    basic_bootstrap_servers: BootstrapServers | None = None
    """`host:port,…` of the listener for them; default: `QUOTAS_KAFKA_BOOTSTRAP_SERVERS`."""

    # TLS with callers, and the principals of their certificates.
    tls_cert_file: Path | None = None
    """PEM file of this server's certificate; with it `QUOTAS_PORT` speaks TLS."""
    tls_key_file: Path | None = None
    """PEM file of its key; default: in the same file."""
    tls_key_password: Secret | None = None
    """The password of that key; default: it has none."""
    tls_port: Port | None = None
    """A port of its own for TLS; `QUOTAS_PORT` then speaks plain HTTP."""
    tls_client_ca_file: Path | None = None
    """PEM file of authorities: a client certificate that they signed is a credential."""
    ssl_principal_mapping_rules: MappingRules = "DEFAULT"
    """From a certificate's subject to the user; mirrors the broker's
    `ssl.principal.mapping.rules`."""

    # Proxies.
    trusted_proxies: Networks = ()
    """`10.0.0.5,10.1.0.0/16`: the proxies whose headers are believed."""
    forwarded_header: ForwardedHeader = ForwardedHeader.NONE
    """Where they note the caller's address: `forwarded`, `x-forwarded-for` or `none`."""

    cors_origins: Origins = ()
    """`https://portal.example;…`: origins whose pages may call this service with a bearer token."""

    policy_file: Path | None = None
    """YAML file of who may alter which quotas within which bounds; SIGHUP reads it again. See
    `docs/policy.md`."""

    callback_file: Path | None = None
    """YAML file of what the brokers' `client.quota.callback.class` does. See
    `docs/callbacks.md`."""

    # Events: who follows the audit log.
    events_topic: TopicName | None = None
    """The topic that each event of the audit log is produced to; it is not created."""
    events_bootstrap_servers: BootstrapServers | None = None
    """`host:port,…` of the topic's brokers; default: those that are served, with
    `QUOTAS_KAFKA_…`."""
    events_security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    events_sasl_mechanism: SaslMechanism | None = None
    """`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    events_sasl_username: str | None = None
    """The account that produces."""
    events_sasl_password: Secret | None = None
    """Its password."""
    events_ssl_ca_file: Path | None = None
    """PEM file of trusted authorities."""
    events_ssl_cert_file: Path | None = None
    """PEM file of a client certificate."""
    events_ssl_key_file: Path | None = None
    """PEM file of its key."""
    events_ssl_key_password: Secret | None = None
    """The password of that key; default: it has none."""
    streams_at_once: Annotated[int, Field(ge=0)] = 256
    """Streams of `GET /audit/stream` of one principal at a time."""
    max_streams: Annotated[int, Field(ge=1)] = 500
    """The same of all principals together; for one more it is 503."""

    # What production accepts only where it is set explicitly.
    cluster_id: str | None = None
    """The id of the one cluster that this service is for; any other is refused."""
    tls_terminated_upstream: bool = False
    """A proxy in front speaks TLS with callers; plain HTTP is for it alone."""
    insecure_allow_plaintext_kafka: bool = False
    """Speak to brokers on other machines without TLS."""
    insecure_allow_plaintext_postgres: bool = False
    """Speak to a Postgres on another machine with less than `sslmode=verify-full`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise ``UnreadSettingError``: only what could not be read is asked for here."""
            raise UnreadSettingError(name)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings."""
        settings, faults = cls.read(environ)
        if faults:
            raise SettingsError("\n".join(faults))
        return settings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> tuple[Self, list[str]]:
        """Read the settings; return them with a sentence for each variable that is wrong.

        A setting that could not be read has no value: ``UnreadSettingError``.
        """
        values: dict[str, object] = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and name not in LOCAL_ONLY and value != ""
        }
        for name in SECRETS:
            if path := values.pop(f"{name}_file", None):
                file = Path(str(path))
                values[name] = (values[name], file) if name in values else file
        problems: list[ErrorDetails] = []
        needed = set() if _ONE_OF_THEM & values.keys() else {"kafka_bootstrap_servers"}
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False)
            needed |= {str(problem["loc"][0]) for problem in problems}
            readable = {name: value for name, value in values.items() if name not in needed}
            settings = cls.model_validate({**_STAND_INS, **readable})
        for name in needed:
            settings.__dict__.pop(name, None)
        faults = {_sentence(problem) for problem in problems}
        if not _ONE_OF_THEM & values.keys():
            faults.add(_needed("kafka_bootstrap_servers"))
        return settings, sorted(faults)

    @property
    def is_production(self) -> bool:
        """Whether an unsafe setting stops the start-up."""
        return self.mode == "production"

    @property
    def stop_delay_s(self) -> float:
        """How long a stop is announced before it begins, in seconds."""
        return self.shutdown_delay_s if self.is_production else 0.0

    @property
    def owner_database_url(self) -> str:
        """The URL that ``migrate`` connects with."""
        return (self.migration_database_url or self.database_url).get_secret_value()

    @property
    def has_plain_listener(self) -> bool:
        """Whether a port speaks plain HTTP."""
        return self.tls_cert_file is None or self.tls_port is not None

    @property
    def ports(self) -> dict[str, int]:
        """The ports to listen on, by variable."""
        ports = {"QUOTAS_PORT": self.port}
        if self.tls_cert_file is not None and self.tls_port is not None:
            ports["QUOTAS_TLS_PORT"] = self.tls_port
        if self.operations_port is not None:
            ports["QUOTAS_OPERATIONS_PORT"] = self.operations_port
        return ports

    @property
    def configured_authenticators(self) -> tuple[AuthenticatorKind, ...]:
        """The kinds of credentials for which everything needed is set."""
        is_configured = {
            AuthenticatorKind.BEARER: bool(self.tokens_file or self.oidc_issuer),
            AuthenticatorKind.CERTIFICATE: self.tls_client_ca_file is not None,
            AuthenticatorKind.BASIC: self.basic_sasl_mechanism is not None,
        }
        return tuple(kind for kind, is_set in is_configured.items() if is_set)

    @property
    def enabled_authenticators(self) -> tuple[AuthenticatorKind, ...]:
        """The kinds of credentials that are accepted, in the order in which they are offered."""
        return self.authenticators or self.configured_authenticators

    @property
    def patience(self) -> Patience:
        """All the time-outs that follow from these."""
        return Patience(
            database_connect_s=self.database_connect_timeout_ms / 1000,
            database_answer_s=self.database_timeout_ms / 1000,
            broker_answer_s=self.kafka_request_timeout_ms / 1000,
        )

    @property
    def kafka(self) -> KafkaSettings:
        """How the brokers are reached with the service's own account.

        Raises:
            ValueError: SASL lacks a mechanism, a user or a password.
        """
        return KafkaSettings(
            self.kafka_bootstrap_servers or "",
            self.kafka_security_protocol,
            self.kafka_sasl_mechanism,
            self.kafka_sasl_username,
            reveal(self.kafka_sasl_password),
            cluster_id=self.cluster_id,
            **self._files("kafka"),
        )

    def events_kafka(self, served: KafkaSettings) -> KafkaSettings:
        """Return how the brokers of the topic of events are reached.

        Args:
            served: How those are reached whose events they are; they have the topic by default.

        Raises:
            ValueError: SASL lacks a mechanism, a user or a password.
        """
        if self.events_bootstrap_servers is None:
            return served
        return KafkaSettings(
            self.events_bootstrap_servers,
            self.events_security_protocol,
            self.events_sasl_mechanism,
            self.events_sasl_username,
            reveal(self.events_sasl_password),
            **self._files("events"),
        )

    def tls_of(self, prefix: Literal["kafka", "events"]) -> KafkaSettings:
        """Return how TLS is spoken with brokers, whoever logs in."""
        return KafkaSettings("localhost:0", SecurityProtocol.SSL, None, **self._files(prefix))

    def _files(self, prefix: str) -> dict[str, str | None]:
        names = ("ssl_ca_file", "ssl_cert_file", "ssl_key_file")
        files = {name: getattr(self, f"{prefix}_{name}") for name in names}
        texts = {name: None if path is None else str(path) for name, path in files.items()}
        password: SecretStr | None = getattr(self, f"{prefix}_ssl_key_password")
        return {**texts, "ssl_key_password": reveal(password)}


def reveal(secret: SecretStr | None) -> str | None:
    """Return a secret as a text."""
    return None if secret is None else secret.get_secret_value()


def unusable_file(setting: str, error: Exception) -> SettingsError:
    """Return the fault of a setting that names a file."""
    reason = getattr(error, "strerror", None) or error
    return SettingsError(f"{setting}: it cannot be used: {reason}.")


def fields() -> list[str]:
    """Return what a variable may be named after: every field, and the files of secrets."""
    return [*Settings.model_fields, *(f"{name}_file" for name in SECRETS)]


def describe(field: str) -> str:
    """Return what a setting is, in one line."""
    return " ".join((Settings.model_fields[field].description or "").split())


def _needed(field: str) -> str:
    return f"{variable(field)} is needed and not set. It is: {describe(field)}".replace("`", "")


def _sentence(problem: ErrorDetails) -> str:
    """Name the variable and its fault; the value is not repeated, it may be a secret."""
    field = str(problem["loc"][0])
    name = variable(field)
    match problem["type"]:
        case "missing":
            return _needed(field)
        case "extra_forbidden":
            if field in GONE:
                return f"{name} is gone. {GONE[field]}.".replace("`", "")
            near = get_close_matches(field, fields(), 1)
            hint = f" Is it {variable(near[0])}?" if near else ""
            return f"{name} is not a setting of this service; check its spelling.{hint}"
        case "value_error":
            return f"{name}: {problem['ctx']['error']}".rstrip(".") + "."
        case _:
            return f"{name}: {problem['msg'][0].lower()}{problem['msg'][1:]}."
