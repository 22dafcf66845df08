"""Parameters of a connection, cutting it off, and the errors that it raises."""

import logging
import socket
import struct
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from app.domain.errors import NotSentError, QuotaError, Retry, Sent
from app.postgres import errors
from app.postgres.connect import QUERYING, WRITING, connection_parameters, read_url
from app.postgres.errors import CommitInDoubtError, failure
from app.postgres.pool import Lease
from app.service.runtime.clock import USUAL, Patience

STARTING = "Postgres is starting or shutting down"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_url_is_read_as_libpq_reads_it(scheme: str):
    parameters = read_url(f"{scheme}://us%40er:p%2Fw@one:5432,two:5433/quotas?sslmode=verify-full")
    assert parameters["user"] == "us@er"
    assert parameters["password"] == "p/w"
    assert (parameters["host"], parameters["port"], parameters["dbname"]) == (
        "one,two",
        "5432,5433",
        "quotas",
    )
    assert parameters["sslmode"] == "verify-full"


def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(subtests: pytest.Subtests):
    for url in [
        "",
        "quotas",
        "mysql://u:secret@h/d",
        "postgresql:u:secret@h",
        "host=h password=secret",
        "postgresql://u:secret@h:port/d?nonsense=1",
        "postgresql://u:secret%zz@h/d",
    ]:
        with subtests.test(url=url):
            with pytest.raises(ValueError, match="postgresql://") as raised:
                read_url(url)
            assert "secret" not in str(raised.value)
            assert raised.value.__cause__ is None


def test_every_connection_carries_its_limits():
    url = "postgresql://h/d?options=-c%20work_mem%3D8MB&application_name=mine"
    writing = connection_parameters(url, WRITING, USUAL)
    assert writing["application_name"] == "mine"
    assert writing["options"].startswith("-c work_mem=8MB -c statement_timeout=2000 ")
    assert "-c lock_timeout=467 " in writing["options"]
    assert "-c idle_in_transaction_session_timeout=5000 " in writing["options"]
    patient = Patience(database_answer_s=14.0)
    of_patient = connection_parameters(url, WRITING, patient)["options"]
    assert "statement_timeout=14600" in of_patient
    assert "idle_in_transaction_session_timeout=14000" in of_patient
    assert "statement_timeout=30000" in connection_parameters(url, QUERYING, USUAL)["options"]


@dataclass
class Driver:
    """A connection as far as cutting it off goes."""

    socket: socket.socket
    closed: bool = False

    def fileno(self) -> int:
        return self.socket.fileno()


@pytest.fixture
def ends() -> Any:
    """A connection over TCP, seen from both sides."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


def lease_of(driver: Any) -> Lease:
    lease = Lease(1.0)
    lease.driver = driver
    return lease


async def test_a_connection_that_is_cut_off_ends_for_both_sides(ends: Any):
    ours, theirs = ends
    assert lease_of(Driver(ours)).cut()
    assert theirs.recv(1) == b""
    assert ours.recv(1) == b""


async def test_a_connection_that_the_other_side_has_reset_can_be_cut_off(ends: Any):
    ours, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(OSError, match="not connected"):
        ours.shutdown(socket.SHUT_RDWR)
    assert lease_of(Driver(ours)).cut()
    assert ours.fileno() > 0, "it is still the driver's to close"


async def test_there_is_nothing_to_cut_off_before_there_is_a_connection(ends: Any):
    ours, theirs = ends
    assert not Lease(1.0).cut()
    assert not lease_of(Driver(ours, closed=True)).cut()
    ours.close()
    assert theirs.recv(1) == b""


def test_a_failure_says_that_nothing_was_sent_and_why(subtests: pytest.Subtests):
    for error, cause in [
        (psycopg.errors.DiskFull(), "the disk of Postgres is full"),
        (psycopg.errors.TooManyConnections(), "no connection left"),
        (psycopg.errors.ReadOnlySqlTransaction(), "read-only"),
        (psycopg.errors.UndefinedTable(), "run `kafka-quota-service migrate`"),
        (psycopg.errors.QueryCanceled(), "did not finish in time"),
        (psycopg.errors.DeadlockDetected(), "Postgres says 40P01"),
        (psycopg.OperationalError('failed: FATAL:  role "a" does not exist'), "the login"),
        (psycopg.OperationalError("FATAL:  password authentication failed"), "the password"),
        *(
            (psycopg.OperationalError(f"failed: FATAL:  the database system is {state}"), STARTING)
            for state in (
                "starting up",
                "shutting down",
                "in recovery mode",
                "not yet accepting connections",
                "not accepting connections",
            )
        ),
        (psycopg.OperationalError("failed: FATAL:  unheard of"), "refuses the connection"),
        (psycopg.OperationalError("connection refused"), "cannot be reached or does not answer"),
        (PoolTimeout("queue"), "cannot be reached or does not answer"),
        (OSError(), "cannot be reached or does not answer"),
        (None, "cannot be reached or does not answer"),
    ]:
        with subtests.test(cause=cause):
            translated = failure(error)
            assert type(translated) is NotSentError
            assert cause in translated.detail
            assert (translated.code, translated.sent) == ("audit-log-unavailable", Sent.NO)
            assert translated.retry is Retry.SAFE


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.NumericValueOutOfRange(),
        psycopg.errors.UniqueViolation(),
        psycopg.errors.NotNullViolation(),
    ],
)
def test_a_row_that_postgres_refuses_is_a_fault_of_ours(error: Exception):
    translated = failure(error)
    assert type(translated) is QuotaError
    assert (translated.code, translated.sent) == ("internal-error", Sent.NO)
    assert translated.retry is Retry.NEVER


def test_what_postgres_says_goes_to_the_log_and_not_to_the_caller(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(errors, "_logged_at", {})
    with caplog.at_level(logging.WARNING):
        translated = failure(psycopg.OperationalError("host db-7.internal refused\nmore"))
    assert "db-7" not in translated.detail
    assert "host db-7.internal refused" in caplog.text
    assert "more" not in caplog.text


def test_the_same_failure_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(errors, "_logged_at", {})
    now = [0.0]
    monkeypatch.setattr(errors.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            failure(OSError("refused"))
            failure(psycopg.errors.DiskFull())
        assert len(caplog.records) == 2
        now[0] = 60.0
        failure(OSError("refused"))
    assert len(caplog.records) == 3


def test_a_commit_without_an_answer_is_in_doubt():
    assert isinstance(failure(None, commits=True), CommitInDoubtError)
