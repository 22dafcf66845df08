"""Quota metrics are found in any exporter's text, labels as exported."""

import math

import pytest

from app.domain.broker_metrics import Sample, quota_samples


def only_sample(text: str) -> Sample:
    (sample,) = quota_samples(text)
    return sample


def test_the_client_id_is_found_in_any_spelling(subtests: pytest.Subtests):
    for label in ["clientId", "client-id", "client_id", "clientid", "CLIENT_ID"]:
        with subtests.test(label=label):
            text = (
                f'kafka_server_quota_byte_rate{{resource="Fetch",user="a%2Cb",{label}="etl"}} 1.5\n'
            )
            assert only_sample(text) == Sample(
                "kafka_server_quota_byte_rate", "Fetch", "a%2Cb", "etl", 1.5
            )


def test_the_resource_may_stand_in_the_name(subtests: pytest.Subtests):
    for kind in ["produce", "fetch", "request", "controllermutation"]:
        with subtests.test(kind=kind):
            metric = f"kafka_server_{kind}_throttle_time"
            assert only_sample(f'{metric}{{user="u"}} 3\n') == Sample(metric, "", "u", "", 3.0)


def test_values_in_quotes_are_left_alone():
    text = 'kafka_server_quota_tokens{user="u",client-id="\\"x\\",client-id=1, {} 2"} 4\n'
    assert only_sample(text).client_id == '"x",client-id=1, {} 2'


def test_escapes_are_undone_and_trailing_commas_and_times_are_accepted():
    text = 'kafka_server_quota_byte_rate{client_id="a\\\\b\\nc",} NaN 1700000000000\n'
    sample = only_sample(text)
    assert sample.client_id == "a\\b\nc"
    assert math.isnan(sample.value)


def test_other_metrics_and_comments_are_left_out():
    text = (
        "# HELP jvm_info what\n# TYPE jvm_info counter\njvm_info 1\n"
        "# TYPE kafka_server_quota_byte_rate untyped\n"
        'kafka_server_brokertopicmetrics_bytesin{topic="t"} 5\n'
    )
    assert list(quota_samples(text)) == []
    assert list(quota_samples("")) == []


@pytest.mark.parametrize(
    "text", ["<html>\n<body>hello</body>", 'kafka_server_quota_byte_rate{user="u"} many\n']
)
def test_what_is_no_prometheus_text_is_refused(text: str):
    with pytest.raises(ValueError, match=r"no line of it is a metric|could not convert"):
        list(quota_samples(text))
