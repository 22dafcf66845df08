"""The numbered describe cases over HTTP; the raw protocol answers the same question."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.http.describing import (
    ANY_CLIENT,
    ANY_IP,
    ANY_USER,
    CLIENT_1,
    CLIENT_2,
    DEFAULT_CLIENT,
    DEFAULT_IP,
    DEFAULT_USER,
    F1,
    USER_1,
    USER_2,
    described,
    text_of,
)
from tests.testkit.raw_quotas import ANY, EXACT, Component, RawQuotas
from tests.testkit.service import RunningService

STRICT, LOOSE = True, False

MATCHES: dict[str, tuple[list[Component], bool, int]] = {
    "everything": ([], LOOSE, 13),
    "C070": ([USER_1, CLIENT_2], STRICT, 0),
    "C071": ([USER_2, DEFAULT_CLIENT], STRICT, 0),
    "C073": ([CLIENT_1], STRICT, 0),
    "C074": ([USER_1], LOOSE, 3),
    "C076": ([CLIENT_2], LOOSE, 2),
    "C077": ([DEFAULT_USER], LOOSE, 2),
    "C079": ([ANY_USER], STRICT, 4),
    "C080": ([ANY_USER], LOOSE, 10),
    "C082": ([ANY_CLIENT], LOOSE, 7),
    "C083": ([ANY_IP], LOOSE, 2),
    "C085": ([], STRICT, 0),
    "C086": ([ANY_USER, ANY_CLIENT], STRICT, 6),
    "C086 not strict": ([ANY_CLIENT, ANY_USER], LOOSE, 6),
    "C088": ([ANY_USER, DEFAULT_CLIENT], STRICT, 2),
    "C089": ([DEFAULT_USER, ANY_CLIENT], STRICT, 1),
    "C091": ([DEFAULT_IP], LOOSE, 0),
    "C092": ([("user", EXACT, "")], LOOSE, 0),
    "user-2 alone": ([USER_2], STRICT, 1),
    "the default user alone": ([DEFAULT_USER], STRICT, 1),
    "client-ids alone": ([ANY_CLIENT], STRICT, 1),
    "user-1 with a client-id": ([USER_1, ANY_CLIENT], STRICT, 2),
    "an address": ([("ip", EXACT, "1.2.3.4")], STRICT, 1),
    "another spelling of an address": ([("ip", EXACT, "01.2.3.4")], LOOSE, 0),
    "a name in capitals": ([("user", EXACT, "USER-1")], LOOSE, 0),
    "the name default in brackets": ([("user", EXACT, "<default>")], LOOSE, 0),
}

REFUSED: dict[str, tuple[list[Component], bool, list[str], tuple[str, int]]] = {
    "C094": ([ANY_IP, ANY_USER], LOOSE, ["invalid-filter-combination"], ("INVALID_REQUEST", 42)),
    "C095": (
        [("client-id", EXACT, "x"), DEFAULT_IP],
        STRICT,
        ["invalid-filter-combination"],
        ("INVALID_REQUEST", 42),
    ),
    "C097": (
        [("User", EXACT, "user-1")],
        LOOSE,
        ["unknown-entity-type"],
        ("UNSUPPORTED_VERSION", 35),
    ),
    "C098": (
        [("user", EXACT, "a"), DEFAULT_USER],
        LOOSE,
        ["repeated-entity-type"],
        ("INVALID_REQUEST", 42),
    ),
    "C100": (
        [("other", EXACT, "a")] * 2,
        LOOSE,
        ["unknown-entity-type"] * 2,
        ("UNSUPPORTED_VERSION", 35),
    ),
    "an empty type": ([("", EXACT, "a")], LOOSE, ["empty-entity-type"], ("INVALID_REQUEST", 42)),
    "a repeated type before an unknown one": (
        [USER_1, ANY_USER, ("other", ANY, None)],
        LOOSE,
        ["repeated-entity-type", "unknown-entity-type"],
        ("INVALID_REQUEST", 42),
    ),
}


@pytest.fixture(scope="module")
def f1(raw: RawQuotas) -> Iterator[RawQuotas]:
    """The broker with fixture F1 and nothing else."""
    raw.become(F1)
    yield raw
    raw.become({})


@pytest.mark.parametrize("max_age_ms", [0, 60_000], ids=["from the broker", "from the image"])
@pytest.mark.parametrize(("components", "strict", "count"), MATCHES.values(), ids=MATCHES)
def test_a_filter_matches_what_the_broker_says_it_matches(
    service: RunningService,
    f1: RawQuotas,
    components: list[Component],
    count: int,
    *,
    max_age_ms: int,
    strict: bool,
) -> None:
    described(service, [], max_age_ms=1)  # from here on the image shows F1
    found = described(
        service,
        [text_of(component) for component in components],
        strict=str(strict).lower(),
        max_age_ms=max_age_ms,
    )
    assert len(found) == count
    assert found == f1.describe(*components, strict=strict).quotas


@pytest.mark.parametrize("max_age_ms", [0, 60_000], ids=["from the broker", "from the image"])
@pytest.mark.parametrize(("components", "strict", "codes", "kafka"), REFUSED.values(), ids=REFUSED)
def test_a_filter_that_a_broker_refuses_is_refused_with_its_error(
    service: RunningService,
    f1: RawQuotas,
    components: list[Component],
    codes: list[str],
    kafka: tuple[str, int],
    *,
    max_age_ms: int,
    strict: bool,
) -> None:
    parameters: dict[str, Any] = {
        "filter": [text_of(component) for component in components],
        "max_age_ms": max_age_ms,
    }
    answer = service.api("bob").get("/quotas", params={**parameters, "strict": str(strict).lower()})
    problem = answer.json()
    name, number = kafka
    assert (answer.status_code, problem["kafka_error"]) == (422, name)
    assert [error["code"] for error in problem["errors"]] == codes
    assert {error["pointer"] for error in problem["errors"]} == {"filter"}
    assert f1.describe(*components, strict=strict).code == number


@pytest.mark.parametrize(
    "text",
    ["", "user:", "user:default ", "user:named", "user:default:x", "user^", "user^team", "user^x="],
)
def test_a_component_that_cannot_be_read_is_told_apart_from_one_that_breaks_a_rule(
    service: RunningService, text: str
) -> None:
    answer = service.api("bob").get("/quotas", params={"filter": [text, "user=a"]})
    assert answer.status_code == 400
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [
        ("filter", "unreadable-filter")
    ]
