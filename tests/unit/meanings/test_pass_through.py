"""Whether callers' passwords are passed on to the brokers, and over which ways never."""

import logging

import pytest

from app.meanings.authenticators import Way, ways
from app.meanings.pass_through import pass_through
from app.settings import Settings, SettingsError

LEAST = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka.example.org:9092",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@/quotas",
}


def settings(**given: str) -> Settings:
    ours = {f"QUOTAS_{name.upper()}": value for name, value in given.items()}
    return Settings.from_env({**LEAST, **ours})


def test_passwords_are_taken_only_where_a_mechanism_is_named() -> None:
    assert pass_through(settings()) is None
    assert pass_through(settings(basic_bootstrap_servers="kafka.example.org:9094")) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_they_go_over_tls_to_the_listener_that_is_named(mechanism: str) -> None:
    way = pass_through(
        settings(basic_sasl_mechanism=mechanism, basic_bootstrap_servers="kafka.example.org:9094")
    )
    assert way is not None
    kafka = way.settings("alice", "secret")
    assert kafka.protocol.uses_tls
    assert kafka.addresses == (("kafka.example.org", 9094),)
    assert (kafka.sasl_username, kafka.sasl_mechanism) == ("alice", mechanism)
    assert "secret" not in repr(kafka)


def test_the_service_s_own_bootstrap_servers_are_the_default() -> None:
    way = pass_through(settings(basic_sasl_mechanism="PLAIN"))
    assert way is not None
    assert way.bootstrap_servers == "kafka.example.org:9092"


REFUSED = {
    "OAUTHBEARER": {"basic_sasl_mechanism": "OAUTHBEARER"},
    "no SASL": {"basic_security_protocol": "SSL"},
    "not even TLS": {"basic_security_protocol": "PLAINTEXT"},
    "an unknown protocol": {"basic_security_protocol": "SASL"},
    "no address": {"basic_bootstrap_servers": "kafka"},
    "a file that is not there": {"kafka_ssl_ca_file": "/there/is/no/such/file"},
    "passwords in the clear": {"basic_security_protocol": "SASL_PLAINTEXT"},
    "logins in the clear": {
        "basic_security_protocol": "SASL_PLAINTEXT",
        "basic_sasl_mechanism": "SCRAM-SHA-512",
    },
    "one address of another machine": {
        "basic_security_protocol": "SASL_PLAINTEXT",
        "basic_bootstrap_servers": "127.0.0.1:9094,10.0.0.1:9094",
    },
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_or_shows_passwords_stops_the_start(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="QUOTAS_"):
        pass_through(settings(**{"basic_sasl_mechanism": "PLAIN", **given}))


def test_in_development_passwords_in_the_clear_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {**REFUSED["passwords in the clear"], "mode": "development"}
    with caplog.at_level(logging.WARNING):
        assert pass_through(settings(basic_sasl_mechanism="PLAIN", **given)) is not None
    assert "passwords go to the brokers unencrypted" in caplog.text


def test_to_this_machine_no_tls_is_needed() -> None:
    way = pass_through(
        settings(
            basic_sasl_mechanism="PLAIN",
            basic_security_protocol="SASL_PLAINTEXT",
            basic_bootstrap_servers="127.0.0.1:9094,localhost:9095,[::1]:9096",
        )
    )
    assert way is not None


def test_passwords_alone_are_a_way_to_call() -> None:
    assert ways(settings(basic_sasl_mechanism="PLAIN")) == (Way.BASIC,)
