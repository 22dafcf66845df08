"""The second witness: the broker itself, by the raw protocol and by its request log."""

from collections.abc import Iterator

import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.raw_quotas import RawQuotas, RequestLog


@pytest.fixture(scope="module")
def raw(broker: LocalKafka) -> Iterator[RawQuotas]:
    """The quota protocol by hand."""
    with RawQuotas(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture(scope="module")
def broker_log(broker: LocalKafka, raw: RawQuotas) -> RequestLog:
    """The alterations that arrived at the broker."""
    return RequestLog(broker.request_log_path, raw)


@pytest.fixture
def empty_cluster(raw: RawQuotas) -> Iterator[RawQuotas]:
    """No quota before and none after: for tests of default entities, of which there is one each."""
    raw.become({})
    yield raw
    raw.become({})


@pytest.fixture(scope="module")
def rules(raw: RawQuotas) -> Iterator[RawQuotas]:
    """The broker, whose rules each case replaces by its own."""
    raw.become({})
    yield raw
    raw.become({})
