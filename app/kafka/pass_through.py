"""How the brokers are reached as somebody who comes with a user and a password."""

from dataclasses import dataclass

from app.kafka.configuration import KafkaSettings


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Where the brokers let callers log in; the files are those of this service's own account.

    Attributes:
        bootstrap_servers: ``host:port,…`` of the listener for callers.
        security_protocol: ``SASL_SSL`` or ``SASL_PLAINTEXT``.
        sasl_mechanism: One of ``SaslMechanism``.
        ssl_ca_file: PEM; null means the authorities that the machine trusts.
        ssl_cert_file: PEM, where the listener wants a client certificate as well; null means none.
        ssl_key_file: PEM of its key.
    """

    bootstrap_servers: str
    security_protocol: str
    sasl_mechanism: str
    ssl_ca_file: str | None = None
    ssl_cert_file: str | None = None
    ssl_key_file: str | None = None

    def settings(self, user: str, password: str) -> KafkaSettings:
        """Return how to reach the brokers as a caller.

        Raises:
            ValueError: The values do not fit together; the text says what to do.
        """
        return KafkaSettings(
            self.bootstrap_servers,
            self.security_protocol,
            self.sasl_mechanism,
            user,
            password,
            self.ssl_ca_file,
            self.ssl_cert_file,
            self.ssl_key_file,
        )
