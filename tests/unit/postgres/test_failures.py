import logging

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.domain.errors import NotSentError, Retry, Sent
from app.postgres.failures import CommitInDoubtError, not_sent


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (psycopg.errors.DiskFull(), "the disk of Postgres is full"),
        (psycopg.errors.TooManyConnections(), "no connection left"),
        (psycopg.errors.ReadOnlySqlTransaction(), "read-only"),
        (psycopg.errors.UndefinedTable(), "run `kafka-quota-service migrate`"),
        (psycopg.errors.QueryCanceled(), "did not finish in time"),
        (psycopg.errors.DeadlockDetected(), "Postgres says 40P01"),
        (OperationalError("insert", {}, psycopg.errors.DiskFull()), "the disk of Postgres is full"),
        (psycopg.OperationalError("connection refused"), "cannot be reached or does not answer"),
        (PoolTimeoutError("queue"), "cannot be reached or does not answer"),
        (OSError(), "cannot be reached or does not answer"),
        (None, "cannot be reached or does not answer"),
    ],
)
def test_a_failure_says_that_nothing_was_sent_and_why(error: Exception | None, cause: str):
    translated = not_sent(error)
    assert type(translated) is NotSentError
    assert cause in translated.detail
    assert (translated.code, translated.sent) == ("audit-log-unavailable", Sent.NO)
    assert translated.retry is Retry.SAFE


def test_what_postgres_says_goes_to_the_log_and_not_to_the_caller(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.WARNING):
        translated = not_sent(psycopg.OperationalError("host db-7.internal refused\nmore"))
    assert "db-7" not in translated.detail
    assert "host db-7.internal refused" in caplog.text
    assert "more" not in caplog.text


def test_a_commit_without_an_answer_is_told_apart():
    assert isinstance(not_sent(None, commits=True), CommitInDoubtError)
