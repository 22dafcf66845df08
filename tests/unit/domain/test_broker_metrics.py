"""Quota metrics are found in any exporter's text, labels as exported."""

import math

import pytest

from app.domain.broker_metrics import (
    QuotaMetric,
    Sample,
    client_id_of_tag,
    quota_metric_of,
    quota_samples,
    tag_of_client_id,
    tag_of_user,
    user_of_tag,
)
from tests.testkit.exporter_samples import EXPORTERS, MEANT


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
    "text", ["<html>\n<body>hello</body>", 'up 1\nkafka_server_quota_byte_rate{user="u"} many\n']
)
def test_what_is_no_prometheus_text_is_refused(text: str):
    with pytest.raises(ValueError, match=r"no line of it is a metric|line 2 is not a metric"):
        list(quota_samples(text))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_every_exporter_in_use_is_understood_alike(exporter: str):
    found = [
        (
            *(quota_metric_of(sample.metric, sample.resource) or ("?", "?")),
            user_of_tag(sample.user),
            client_id_of_tag(sample.client_id),
            sample.value,
        )
        for sample in quota_samples(EXPORTERS[exporter])
    ]
    assert found == MEANT


def test_of_several_labels_the_one_that_says_most_wins():
    text = 'kafka_server_quota_byte_rate{type="x",resource="Fetch",client="b",client_id="a"} 1\n'
    assert only_sample(text)[1:4] == ("Fetch", "", "a")


def test_a_label_that_is_no_resource_says_nothing_of_a_metric_that_names_its_own():
    assert quota_metric_of("kafka_server_produce_byte_rate", "kafka") == QuotaMetric(
        "producer_byte_rate", "rate"
    )
    assert quota_metric_of("kafka_server_produce_byte_rate", "Fetch") is None
    assert quota_metric_of("kafka_server_quota_byte_rate", "kafka") is None


def test_the_share_that_brokers_compute_is_left_out_of_a_scrape():
    metric = "kafka_server_Produce_quota_utilization"
    assert quota_metric_of(metric, "") == QuotaMetric("producer_byte_rate", "utilization")
    assert list(quota_samples(f'{metric}{{user="alice"}} 21.5\n')) == []


def test_a_user_that_swallowed_a_client_id_is_no_name():
    assert user_of_tag("alice, client-id=etl") is None
    assert user_of_tag("alice,client-id=etl") is None
    # A broker encodes what is really in a name.
    assert user_of_tag("alice%2C%20client-id%3Detl") == "alice, client-id=etl"
    assert client_id_of_tag('"x, client-id=1"') == "x, client-id=1"


@pytest.mark.parametrize(
    ("name", "user", "client_id"),
    [
        ("etl-1_a", "etl-1_a", "etl-1_a"),
        ("CN=a b,O=c*", "CN%3Da%20b%2CO%3Dc%2A", '"CN=a b,O=c\\*"'),
        ('say "hi"\\\n', "say%20%22hi%22%5C%0A", '"say \\"hi\\"\\\\\\n"'),
        ("Zoë~", "Zo%C3%AB%7E", '"Zoë~"'),
        ("50%", "50%25", "50%"),
        ("", "", ""),
    ],
)
def test_tags_are_those_of_the_broker_and_read_back(name: str, user: str, client_id: str):
    assert (tag_of_user(name), tag_of_client_id(name)) == (user, client_id)
    assert (user_of_tag(user), client_id_of_tag(client_id)) == (name, name)
