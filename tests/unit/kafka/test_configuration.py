import pytest

from app.kafka.configuration import KafkaSettings, ssl_context


def test_the_bootstrap_servers_are_a_list_of_host_and_port():
    settings = KafkaSettings("a:9092, b.example:19092,[::1]:9094")
    assert settings.addresses == (("a", 9092), ("b.example", 19092), ("::1", 9094))


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", ":9092", "a:port", "a:9092;b:9092"])
def test_bootstrap_servers_that_name_no_port_are_refused(text: str):
    with pytest.raises(ValueError, match="bootstrap server"):
        KafkaSettings(text)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"security_protocol": "SSH"}, "security protocol"),
        ({"security_protocol": "SASL_SSL"}, "SASL mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "SASL mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "password"),
    ],
)
def test_settings_that_could_never_connect_are_refused(values: dict[str, str], word: str):
    with pytest.raises(ValueError, match=word):
        KafkaSettings("a:9092", **values)


def test_the_password_is_not_shown():
    settings = KafkaSettings(
        "a:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password="hush",
    )
    assert "hush" not in repr(settings)


def test_an_unencrypted_protocol_has_no_tls_context():
    assert ssl_context(KafkaSettings("a:9092")) is None


def test_a_certificate_file_that_is_missing_is_an_error_at_once():
    settings = KafkaSettings("a:9092", security_protocol="SSL", ssl_ca_file="/no/such/file.pem")
    with pytest.raises(OSError, match="No such file"):
        ssl_context(settings)
