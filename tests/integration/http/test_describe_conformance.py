"""The numbered describe cases over HTTP; the raw protocol answers the same question."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.http.service_calls import I, P, R, change
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import ANY, DEFAULT, EXACT, Component, Entity, RawQuotas, entity_of
from tests.testkit.resolution_cases import describe_fixture
from tests.testkit.service import RunningService

F1: dict[Entity, dict[str, float]] = {
    entity_of(entity.as_dict()): dict(values) for entity, values in describe_fixture().items()
}

USER_1 = ("user", EXACT, "user-1")
USER_2 = ("user", EXACT, "user-2")
CLIENT_1 = ("client-id", EXACT, "client-id-1")
CLIENT_2 = ("client-id", EXACT, "client-id-2")
ANY_USER, ANY_CLIENT, ANY_IP = ("user", ANY, None), ("client-id", ANY, None), ("ip", ANY, None)
DEFAULT_USER, DEFAULT_CLIENT = ("user", DEFAULT, None), ("client-id", DEFAULT, None)
DEFAULT_IP = ("ip", DEFAULT, None)

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

INVALID, UNSUPPORTED = ("INVALID_REQUEST", 42), ("UNSUPPORTED_VERSION", 35)
TOGETHER, UNKNOWN = "invalid-filter-combination", "unknown-entity-type"

REFUSED: dict[str, tuple[list[Component], bool, list[str], tuple[str, int]]] = {
    "C094": ([ANY_IP, ANY_USER], LOOSE, [TOGETHER], INVALID),
    "C095": ([("client-id", EXACT, "x"), DEFAULT_IP], STRICT, [TOGETHER], INVALID),
    "C097": ([("User", EXACT, "user-1")], LOOSE, [UNKNOWN], UNSUPPORTED),
    "C098": ([("user", EXACT, "a"), DEFAULT_USER], LOOSE, ["repeated-entity-type"], INVALID),
    "C100": ([("other", EXACT, "a")] * 2, LOOSE, [UNKNOWN] * 2, UNSUPPORTED),
    "an empty type": ([("", EXACT, "a")], LOOSE, ["empty-entity-type"], INVALID),
    "a repeated type before an unknown one": (
        [USER_1, ANY_USER, ("other", ANY, None)],
        LOOSE,
        ["repeated-entity-type", UNKNOWN],
        INVALID,
    ),
}


def text_of(component: Component) -> str:
    kind, match_type, match = component
    return {EXACT: f"{kind}={match}", DEFAULT: f"{kind}:default", ANY: f"{kind}:any"}[match_type]


def described(
    service: RunningService, filters: list[str], **parameters: str | int | list[str]
) -> dict[Entity, dict[str, float]]:
    answer = service.api("bob").get("/quotas", params={"filter": filters, **parameters})
    assert answer.status_code == 200, answer.text
    quotas = answer.json()["quotas"]
    found = {entity_of(quota["entity"]): quota["values"] for quota in quotas}
    assert len(found) == len(quotas)
    return found


@pytest.fixture(scope="module")
def f1(raw: RawQuotas) -> Iterator[RawQuotas]:
    """The broker with fixture F1 and nothing else."""
    raw.become(F1)
    yield raw
    raw.become({})


IN_BOTH = pytest.mark.parametrize(
    "max_age_ms", [0, 60_000], ids=["from the broker", "from the image"]
)


@IN_BOTH
def test_a_filter_matches_what_the_broker_says_it_matches(
    service: RunningService, f1: RawQuotas, max_age_ms: int, subtests: pytest.Subtests
) -> None:
    for name, (components, strict, count) in MATCHES.items():
        with subtests.test(name):
            described(service, [], max_age_ms=1)  # from here on the image shows F1
            found = described(
                service,
                [text_of(component) for component in components],
                strict=str(strict).lower(),
                max_age_ms=max_age_ms,
            )
            assert len(found) == count
            assert found == f1.describe(*components, strict=strict).quotas


@IN_BOTH
def test_a_filter_that_a_broker_refuses_is_refused_with_its_error(
    service: RunningService, f1: RawQuotas, max_age_ms: int, subtests: pytest.Subtests
) -> None:
    for case, (components, strict, codes, kafka) in REFUSED.items():
        with subtests.test(case):
            parameters: dict[str, Any] = {
                "filter": [text_of(component) for component in components],
                "max_age_ms": max_age_ms,
                "strict": str(strict).lower(),
            }
            answer = service.api("bob").get("/quotas", params=parameters)
            problem = answer.json()
            name, number = kafka
            assert (answer.status_code, problem["kafka_error"]) == (422, name)
            assert [error["code"] for error in problem["errors"]] == codes
            assert {error["pointer"] for error in problem["errors"]} == {"filter"}
            assert f1.describe(*components, strict=strict).code == number


@IN_BOTH
def test_what_the_protocol_cannot_ask_is_done_over_its_answer(
    service: RunningService, f1: RawQuotas, max_age_ms: int
) -> None:
    cases: list[tuple[list[str], dict[str, Any], int]] = [
        (["user"], {"strict": "true"}, 4),
        (["user^=user-1"], {}, 3),
        (["user~=ER-1"], {}, 3),
        (["any~=ID-1"], {}, 3),
        (["any~=id-2", "any~=USER-3"], {}, 1),
        (["any~=2.3", "ip"], {}, 2),
        (["any~=user-1", "user"], {"strict": "true"}, 1),
        (["user:absent", "client-id:any"], {}, 1),
        (["client-id:absent", "user=user-1"], {"strict": "true"}, 1),
        (["ip:any"], {"has_key": [R, I]}, 2),
        (["user=user-1"], {"has_key": [I]}, 0),
        ([], {"has_key": "unheard_of"}, 0),
    ]
    described(service, [], max_age_ms=1)
    for filters, parameters, count in cases:
        found = described(service, filters, max_age_ms=max_age_ms, **parameters)
        assert len(found) == count, filters
        assert found.items() <= F1.items()


def test_c064_the_literal_name_is_found_beside_the_default(
    service: RunningService, raw: RawQuotas
) -> None:
    client = unique()
    raw.store({"user": "<default>", "client-id": client}, {P: 1.0})
    raw.store({"user": None, "client-id": client}, {P: 2.0})
    here = f"client-id={client}"
    assert list(described(service, ["user=<default>", here]).values()) == [{P: 1}]
    assert list(described(service, ["user:default", here]).values()) == [{P: 2}]
    assert list(described(service, ["user^=<", here]).values()) == [{P: 1}]


def test_c106_a_removed_address_is_gone_and_the_default_stays(
    service: RunningService, empty_cluster: RawQuotas
) -> None:
    address, default = {"ip": "1.2.3.4"}, {"ip": None}
    service.alter(change(address, {I: 150}), change(default, {I: 200}))
    assert described(service, ["ip:any"], strict="true") == {
        entity_of(address): {I: 150},
        entity_of(default): {I: 200},
    }
    service.alter(change(address, {I: None}))
    assert described(service, ["ip=1.2.3.4"], strict="true") == {}
    assert described(service, ["ip:any"], strict="true") == {entity_of(default): {I: 200}}
    assert empty_cluster.everything() == {entity_of(default): {I: 200.0}}


def test_an_image_may_be_as_old_as_was_allowed_and_says_how_old_it_is(
    service: RunningService, raw: RawQuotas
) -> None:
    name = unique()
    api = service.api("bob")
    before = api.get("/quotas", params={"max_age_ms": 1}).json()
    raw.store({"user": name}, {P: 5.0})
    old = api.get("/quotas", params={"max_age_ms": 2**31 - 1}).json()
    assert old["as_of"] == before["as_of"]
    assert old["quotas"] == before["quotas"]
    now = api.get("/quotas", params={"filter": f"user={name}"}).json()
    assert now["as_of"] > old["as_of"]
    assert [quota["values"] for quota in now["quotas"]] == [{P: 5}]
