"""How librdkafka connects, by the settings that our own connections go by."""

from confluent_kafka import Producer

from app.kafka.config import KafkaSettings, SaslMechanism, SecurityProtocol
from app.kafka.event_topic import connection_config


def test_librdkafka_connects_as_the_settings_say():
    plain = connection_config(KafkaSettings("a:1,b:2"))
    assert plain == {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"}
    settings = KafkaSettings(
        "a:1",
        SecurityProtocol.SASL_SSL,
        SaslMechanism.SCRAM_SHA_512,
        "quotas",
        "secret",
        ssl_ca_file="/ca.pem",
        ssl_cert_file="/own.pem",
    )
    config = connection_config(settings)
    assert config == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "quotas",
        "sasl.password": "secret",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/own.pem",
        "ssl.key.location": "/own.pem",
    }
    names = {"sasl.mechanism", "sasl.username", "sasl.password", "security.protocol"}
    Producer({name: config[name] for name in names})
