"""Time-outs: those that are set, and those that follow from them."""

from dataclasses import astuple

import pytest

from app.service.runtime.clock import USUAL, Patience
from app.settings import Settings, SettingsError

NEEDED = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@127.0.0.1:1/quotas",
}

OF_THE_DATABASE = ("conclusion_s", "record_s", "entity_wait_s", "statement_s", "lock_s")
AT_LEAST = {"look_up_s": 5.0, "list_s": 10.0, "report_s": 30.0}
OF_BROKERS = ("check_s", "fact_s")
AT_LEAST_OF_BROKERS = {"entities_s": 6.0, "image_s": 10.0, "alter_s": 15.0}


def computed(patience: Patience, *names: str) -> list[float]:
    return [round(getattr(patience, name), 6) for name in names]


def test_without_settings_they_are_the_usual_ones():
    patience = Settings.from_env(NEEDED).patience
    assert patience == USUAL
    assert astuple(patience) == (1.0, 1.4, 5.0)
    assert computed(patience, *OF_THE_DATABASE) == [2.8, 3.0, 2.0, 2.0, 0.5]
    assert computed(patience, *AT_LEAST) == [5.0, 10.0, 30.0]
    assert computed(patience, *OF_BROKERS, *AT_LEAST_OF_BROKERS) == [2.0, 3.0, 6.0, 10.0, 15.0]


def test_the_settings_are_milliseconds():
    settings = {
        "QUOTAS_DATABASE_CONNECT_TIMEOUT_MS": "2500",
        "QUOTAS_DATABASE_TIMEOUT_MS": "14000",
        "QUOTAS_KAFKA_REQUEST_TIMEOUT_MS": "20000",
    }
    patience = Settings.from_env({**NEEDED, **settings}).patience
    assert patience == Patience(2.5, 14.0, 20.0)
    assert computed(patience, *OF_THE_DATABASE, *AT_LEAST) == [28, 30, 20, 20, 5, 14, 14, 30]
    assert computed(patience, *OF_BROKERS, *AT_LEAST_OF_BROKERS) == [8, 12, 20, 20, 20]


@pytest.mark.parametrize("timeout_ms", ["0", "-1", "9", "60001", "1.5", "soon"])
def test_a_time_out_that_cannot_be_meant_is_refused(timeout_ms: str):
    with pytest.raises(SettingsError, match="QUOTAS_DATABASE_TIMEOUT_MS"):
        Settings.from_env({**NEEDED, "QUOTAS_DATABASE_TIMEOUT_MS": timeout_ms})
