"""The properties of the local broker."""

from pathlib import Path

from app.localdev.kafka import (
    LocalTls,
    broker_properties,
    listener_names,
    logging_text,
    properties_text,
    sasl_properties,
    scram_arguments,
    tls_properties,
)

PORTS = {"CONTROLLER": 1, "PLAINTEXT": 2, "SASL_PLAINTEXT": 3}


def test_the_controller_listener_is_not_advertised():
    properties = broker_properties(Path("/data"), PORTS, "User:admin")
    assert properties["listeners"].startswith("CONTROLLER://127.0.0.1:1,PLAINTEXT://127.0.0.1:2")
    assert properties["advertised.listeners"] == (
        "PLAINTEXT://127.0.0.1:2,SASL_PLAINTEXT://127.0.0.1:3"
    )


def test_acls_are_enforced():
    properties = broker_properties(Path("/data"), PORTS, "User:admin")
    assert properties["authorizer.class.name"].endswith(".StandardAuthorizer")
    assert properties["super.users"] == "User:admin"


def test_a_password_with_quotes_and_backslashes_is_quoted_for_jaas():
    properties = sasl_properties(PORTS, {"alice": 'a"b\\c'})
    jaas = properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert jaas.endswith(r' required user_alice="a\"b\\c";')


def test_backslashes_survive_the_properties_file():
    assert properties_text({"key": "a\\b"}) == "key=a\\\\b\n"


def test_scram_users_are_stored_for_both_mechanisms():
    assert scram_arguments({"bob": "pw"}) == [
        "--add-scram",
        "SCRAM-SHA-256=[name=bob,password=pw]",
        "--add-scram",
        "SCRAM-SHA-512=[name=bob,password=pw]",
    ]


def test_tls_adds_two_listeners_with_pem_stores():
    tls = LocalTls(Path("/key.pem"), Path("/ca.pem"))
    assert listener_names(tls)[-2:] == ["SSL", "SASL_SSL"]
    assert tls_properties(tls)["ssl.keystore.type"] == "PEM"
    assert listener_names(None) == list(PORTS)
    assert tls_properties(None) == {}


def test_requests_are_logged_only_when_asked():
    assert "kafka.request.logger" not in logging_text(None)
    assert "kafka.request.logger" in logging_text(Path("/requests.log"))
