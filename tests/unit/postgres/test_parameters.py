import pytest

from app.postgres.parameters import QUERYING, WRITING, connection_parameters, read_url


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_url_is_read_as_libpq_reads_it(scheme: str):
    parts = read_url(f"{scheme}://us%40er:p%2Fw@one:5432,two:5433/quotas?sslmode=verify-full")
    assert parts["user"] == "us@er"
    assert parts["password"] == "p/w"
    assert (parts["host"], parts["port"], parts["dbname"]) == ("one,two", "5432,5433", "quotas")
    assert parts["sslmode"] == "verify-full"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "quotas",
        "mysql://u:secret@h/d",
        "postgresql:u:secret@h",
        "host=h password=secret",
        "postgresql://u:secret@h:port/d?nonsense=1",
        "postgresql://u:secret%zz@h/d",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url: str):
    with pytest.raises(ValueError, match="postgresql://") as raised:
        read_url(url)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_every_connection_carries_its_limits():
    url = "postgresql://h/d?options=-c%20work_mem%3D8MB&application_name=mine"
    writing = connection_parameters(url, WRITING)
    assert writing["application_name"] == "mine"
    assert writing["options"].startswith("-c work_mem=8MB -c statement_timeout=2000 ")
    assert "-c lock_timeout=500 " in writing["options"]
    assert "-c idle_in_transaction_session_timeout=5000 " in writing["options"]
    assert "statement_timeout=30000" in connection_parameters(url, QUERYING)["options"]
