"""Callers who log in at the brokers with their own user and password."""

from pydantic import Field

from app.settings.values import Fields


class PassThrough(Fields):
    """Callers who log in at the brokers with their own user and password."""

    basic_sasl_mechanism: str | None = Field(
        None,
        description="`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`: accepts `Authorization: Basic` "
        "and logs in at the brokers with it; default: Basic is off.",
    )
    basic_security_protocol: str = Field(
        "SASL_SSL",
        description="`SASL_SSL`, or `SASL_PLAINTEXT` on this machine and in development: how such "
        "callers are logged in.",
    )
    basic_bootstrap_servers: str | None = Field(
        None,
        description="`host:port,…` of the listener for them; default: "
        "`QUOTAS_KAFKA_BOOTSTRAP_SERVERS`.",
    )
