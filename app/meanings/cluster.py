"""How the brokers are reached."""

from pathlib import Path

from app.kafka.configuration import KafkaSettings, ssl_context
from app.settings import Settings, SettingsError


def kafka_settings(settings: Settings) -> KafkaSettings:
    """Return how to reach the brokers.

    Raises:
        SettingsError: The values do not fit together, or a file cannot be read.
    """
    password = settings.kafka_sasl_password
    try:
        kafka = KafkaSettings(
            settings.kafka_bootstrap_servers,
            settings.kafka_security_protocol,
            settings.kafka_sasl_mechanism,
            settings.kafka_sasl_username,
            password.get_secret_value() if password else None,
            _text(settings.kafka_ssl_ca_file),
            _text(settings.kafka_ssl_cert_file),
            _text(settings.kafka_ssl_key_file),
            settings.cluster_id,
        )
        ssl_context(kafka)
    except ValueError as error:
        message = f"QUOTAS_KAFKA_…: {error}"
        raise SettingsError(message) from None
    except OSError as error:
        message = f"QUOTAS_KAFKA_SSL_…: A file cannot be used: {error.strerror or error}."
        raise SettingsError(message) from None
    return kafka


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
