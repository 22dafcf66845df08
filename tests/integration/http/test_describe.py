"""What the service does over the answer of a broker, and how old that may be."""

from collections.abc import Iterator

import pytest

from tests.integration.http.changes import I, P, R, change
from tests.integration.http.describing import F1, described
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import Entity, RawQuotas, entity_of
from tests.testkit.service import RunningService


@pytest.fixture(scope="module")
def f1(raw: RawQuotas) -> Iterator[RawQuotas]:
    """The broker with fixture F1 and nothing else."""
    raw.become(F1)
    yield raw
    raw.become({})


def users(*names: str | None) -> set[Entity]:
    return {entity_of({"user": name}) for name in names}


def pairs(*names: tuple[str | None, str | None]) -> set[Entity]:
    return {entity_of({"user": user, "client-id": client}) for user, client in names}


CLIENT_2_ALONE = entity_of({"client-id": "client-id-2"})
ADDRESSES = {entity_of({"ip": "1.2.3.4"}), entity_of({"ip": "2.3.4.5"})}

OURS: dict[str, tuple[list[str], dict[str, str | list[str]], set[Entity]]] = {
    "a type alone is any": (
        ["user"],
        {"strict": "true"},
        users("user-1", "user-2", "user-3", None),
    ),
    "a prefix never means the default": (
        ["user^=user-"],
        {"strict": "true"},
        users("user-1", "user-2", "user-3"),
    ),
    "a prefix without strict": (
        ["user^=user-1"],
        {},
        users("user-1") | pairs(("user-1", "client-id-1"), ("user-1", None)),
    ),
    "an empty prefix is any name": (["ip^="], {}, ADDRESSES),
    "a prefix in capitals": (["user^=User"], {}, set()),
    "a prefix of an address": (["ip^=1."], {}, {entity_of({"ip": "1.2.3.4"})}),
    "absent": (["user:absent"], {}, {CLIENT_2_ALONE} | ADDRESSES),
    "absent beside another type": (["user:absent", "client-id:any"], {}, {CLIENT_2_ALONE}),
    "absent is no type for strict": (
        ["client-id:absent", "user=user-1"],
        {"strict": "true"},
        users("user-1"),
    ),
    "absent makes the user alone": (
        ["user:any", "client-id:absent"],
        {},
        users("user-1", "user-2", "user-3", None),
    ),
    "absent goes beside ip": (["user:absent", "ip:any"], {}, ADDRESSES),
    "absent alone and strict is nothing": (["user:absent"], {"strict": "true"}, set()),
    "absent of both": (["user:absent", "client-id:absent"], {}, ADDRESSES),
    "a prefix beside a default": (
        ["user^=user-3", "client-id:default"],
        {},
        pairs(("user-3", None)),
    ),
    "a key": ([], {"has_key": I}, ADDRESSES),
    "a key that nobody has": ([], {"has_key": P}, set()),
    "a key that no broker knows": ([], {"has_key": "unheard_of"}, set()),
    "any of several keys": (["ip:any"], {"has_key": [R, I]}, ADDRESSES),
    "a key and a filter": (["user=user-1"], {"has_key": [I]}, set()),
}


@pytest.mark.parametrize("max_age_ms", [0, 60_000], ids=["from the broker", "from the image"])
@pytest.mark.parametrize(("filters", "parameters", "wanted"), OURS.values(), ids=OURS)
def test_what_the_protocol_cannot_ask_is_done_over_its_answer(
    service: RunningService,
    f1: RawQuotas,
    filters: list[str],
    parameters: dict[str, str | list[str]],
    wanted: set[Entity],
    *,
    max_age_ms: int,
) -> None:
    described(service, [], max_age_ms=1)
    found = described(service, filters, max_age_ms=max_age_ms, **parameters)
    assert found == {entity: F1[entity] for entity in wanted}


def test_the_name_needs_nothing_but_url_encoding(service: RunningService, raw: RawQuotas) -> None:
    name = f"{unique()}=a:b^=c&d+e%20 f"
    raw.store({"user": name}, {P: 5.0})
    for text in (f"user={name}", f"user^={name[:-1]}"):
        assert described(service, [text]) == {entity_of({"user": name}): {P: 5}}


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


def test_c107_a_change_that_nobody_waited_for_shows_sooner_or_later(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    answer = service.alter(change(names, {P: 5}), wait="none")
    assert (answer.status_code, answer.json()["readable"]) == (200, None)
    raw.wait_until(lambda: described(service, [f"user={names['user']}"]) != {})
    assert raw.stored(names) == {P: 5.0}


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
