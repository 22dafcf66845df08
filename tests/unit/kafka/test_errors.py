import pytest

from app.domain.alterations import Outcome
from app.domain.errors import BrokerError, InvalidRequestError, Retry, TooManyRequestsError
from app.kafka.errors import alter_outcome, alter_refusal, describe_error


def test_a_code_means_what_the_table_of_verdicts_says(subtests: pytest.Subtests):
    for code, outcome, name in [
        (42, Outcome.REFUSED, "INVALID_REQUEST"),
        (44, Outcome.REFUSED, "POLICY_VIOLATION"),
        (35, Outcome.REFUSED, "UNSUPPORTED_VERSION"),
        (40, Outcome.REFUSED, "INVALID_CONFIG"),
        (31, Outcome.REFUSED, "CLUSTER_AUTHORIZATION_FAILED"),
        (54, Outcome.REFUSED, "SECURITY_DISABLED"),
        (89, Outcome.REFUSED, "THROTTLING_QUOTA_EXCEEDED"),
        (7, Outcome.UNKNOWN, "REQUEST_TIMED_OUT"),
        (-1, Outcome.UNKNOWN, "UNKNOWN_SERVER_ERROR"),
        (41, Outcome.UNKNOWN, "NOT_CONTROLLER"),
        (13, Outcome.UNKNOWN, "NETWORK_EXCEPTION"),
        (14, Outcome.UNKNOWN, "COORDINATOR_LOAD_IN_PROGRESS"),
        (31999, Outcome.UNKNOWN, None),
    ]:
        with subtests.test(code=code, name=name):
            assert alter_outcome(code, validate_only=False) is outcome
            refusal = alter_refusal(code, None)
            assert refusal is not None
            assert refusal.kafka_error == name
            assert str(code) in refusal.message


def test_success_is_applied_or_validated_and_has_no_refusal():
    assert alter_outcome(0, validate_only=False) is Outcome.APPLIED
    assert alter_outcome(0, validate_only=True) is Outcome.VALIDATED
    assert alter_refusal(0, None) is None


def test_a_refusal_of_our_own_account_names_the_acl_that_is_missing():
    refusal = alter_refusal(31, "Cluster authorization failed.")
    assert refusal is not None
    assert "Cluster authorization failed." in refusal.message
    assert "ALTER_CONFIGS on Cluster kafka-cluster" in refusal.message
    error = describe_error(31, None, 0)
    assert type(error) is BrokerError
    assert error.code == "service-account-not-authorized"
    assert error.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
    assert "DESCRIBE_CONFIGS on Cluster kafka-cluster" in error.detail


def test_a_describe_error_keeps_the_words_of_the_broker(subtests: pytest.Subtests):
    for code, kind in [
        (42, InvalidRequestError),
        (35, InvalidRequestError),
        (7, BrokerError),
        (-1, BrokerError),
    ]:
        with subtests.test(code=code):
            error = describe_error(code, "Unsupported entity type bad", 0)
            assert type(error) is kind
            assert error.detail == "Unsupported entity type bad"


def test_a_throttled_describe_says_when_to_come_back():
    error = describe_error(89, "later", 1500)
    assert type(error) is TooManyRequestsError
    assert error.retry_after_s == 1.5
    assert error.retry is Retry.SAFE
