"""What production must be told aloud before it is taken for safe."""

from pydantic import Field

from app.settings.values import Fields


class Production(Fields):
    """What production must be told aloud before it is taken for safe."""

    cluster_id: str | None = Field(
        None,
        description="The id of the one cluster that this service is for; any other is refused.",
    )
    tls_terminated_upstream: bool = Field(
        False, description="A proxy in front speaks TLS with callers; plain HTTP is for it alone."
    )
    insecure_allow_plaintext_kafka: bool = Field(
        False, description="Speak to brokers on other machines without TLS."
    )
    insecure_allow_plaintext_postgres: bool = Field(
        False,
        description="Speak to a Postgres on another machine with less than `sslmode=verify-full`.",
    )
