"""How the brokers are reached, with the account of the service itself."""

from pathlib import Path

from pydantic import Field, SecretStr

from app.settings.values import Fields


class Cluster(Fields):
    """How the brokers are reached, with the account of the service itself."""

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
