"""What other tools stored: described as it is in every format, logged, never stuck."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.integration.http.service_calls import C, I, M, P, R, applied, change, rows
from tests.testkit.http import read_csv, read_json, read_ndjson, read_yaml
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import Names, RawQuotas, printed
from tests.testkit.service import RunningService

FORMATS = {
    "application/json": read_json,
    "application/x-ndjson": read_ndjson,
    "text/csv": read_csv,
    "application/yaml": read_yaml,
}
NAN, INFINITY = float("nan"), float("inf")
TWO_TO_63 = 2.0**63


class Odd(NamedTuple):
    """An entity and its values, and the values as JSON."""

    names: Names
    values: dict[str, float]
    described: dict[str, object]


def named(name: str) -> Odd:
    return Odd({"user": name, "client-id": name}, {P: 1.0}, {P: 1})


ODD = {
    "NaN": Odd(
        {"user": "odd-nan"},
        {P: NAN, C: NAN, R: NAN, M: NAN},
        {P: "NaN", C: "NaN", R: "NaN", M: "NaN"},
    ),
    "infinity": Odd(
        {"user": "odd-infinity", "client-id": None},
        {R: INFINITY, M: INFINITY},
        {R: "Infinity", M: "Infinity"},
    ),
    "nearly an integer": Odd({"client-id": "odd-nearly"}, {C: 1235.0000001}, {C: 1235.0000001}),
    "next to nothing": Odd({"user": "odd-tiny"}, {P: 1e-9, R: 5e-324}, {P: 1e-9, R: 5e-324}),
    "beyond 2^53": Odd(
        {"user": "odd-large"},
        {P: 9007199254740993.0, C: TWO_TO_63, R: 1e300},
        {P: 9007199254740992, C: 9223372036854775807, R: 1e300},
    ),
    "a connection rate below 1": Odd({"ip": "10.77.0.1"}, {I: 1e-9}, {I: 1e-9}),
    "a connection rate of NaN": Odd({"ip": "10.77.0.2"}, {I: NAN}, {I: "NaN"}),
    "the name default": named("<default>"),
    "a comma": named("a,b"),
    "quotes": named("it's \"quoted\", 'twice'"),
    "a newline": named("two\nlines\r\nand a return"),
    "=": named("=1+1"),
    "+": named("+1"),
    "-": named("-1"),
    "@": named("@sum"),
    "'": named("'quoted'"),
    "a tab": named("\ttab"),
    "a carriage return": named("\r=1"),
    "a backslash": named("back\\slash"),
    "U+0000": named("a\0b"),
    "a word of YAML": named("null"),
    "a number": named("1e3"),
    "blanks": named("  blank  "),
    "not normalized": named("u\N{COMBINING DIAERESIS}"),
    "beyond the basic plane": named("\N{GRINNING FACE}"),
    "separators": named("\u2028\x85\u200f"),
    "500 bytes": named("x" * 500),
    "500 bytes of two each": named("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 250),
    "1000 bytes": named("y" * 1000),
    "a host name": Odd({"ip": "localhost"}, {I: 1e6}, {I: 1000000}),
    "a long address": Odd({"ip": "2001:db8:0:0:0:0:0:a"}, {I: 5.0}, {I: 5}),
    "an address in capitals": Odd({"ip": "2001:DB8::B"}, {I: 6.0}, {I: 6}),
    "a mapped address": Odd({"ip": "::ffff:10.77.0.3"}, {I: 7.0}, {I: 7}),
    "an address in brackets": Odd({"ip": "[2001:db8::c]"}, {I: 8.0}, {I: 8}),
    "a short address": Odd({"ip": "10.77.4"}, {I: 9.0}, {I: 9}),
    "an address as a number": Odd({"ip": "172818437"}, {I: 10.0}, {I: 10}),
    "an address with zeros": Odd({"ip": "010.077.000.006"}, {I: 11.0}, {I: 11}),
}


@pytest.fixture(scope="module")
def stored(raw: RawQuotas) -> Iterator[RawQuotas]:
    """The broker with all that and nothing else; no tool but the protocol itself wrote it."""
    raw.become({frozenset(odd.names.items()): odd.values for odd in ODD.values()})
    yield raw
    raw.become({})


@pytest.mark.parametrize("media_type", FORMATS)
@pytest.mark.parametrize("max_age_ms", [0, 1])
def test_everything_comes_back_in_every_format(
    service: RunningService, stored: RawQuotas, media_type: str, max_age_ms: int
) -> None:
    answer = service.api("bob").get(
        "/quotas", params={"max_age_ms": max_age_ms}, headers={"Accept": media_type}
    )
    assert answer.headers["Content-Type"].startswith(media_type)
    found = FORMATS[media_type](answer.content)
    assert len(found) == len(ODD)
    assert {frozenset(names.items()): printed(values) for names, values in found} == {
        entity: printed(values) for entity, values in stored.everything().items()
    }


def test_an_odd_entity_is_found_by_its_name_and_written_as_the_contract_says(
    service: RunningService, stored: RawQuotas, subtests: pytest.Subtests
) -> None:
    for case, odd in ODD.items():
        with subtests.test(case):
            filters = [
                f"{kind}:default" if name is None else f"{kind}={name}"
                for kind, name in odd.names.items()
            ]
            answer = service.api("bob").get("/quotas", params={"filter": filters, "strict": "true"})
            (quota,) = answer.json()["quotas"]
            assert (quota["entity"], quota["values"]) == (odd.names, odd.described)


def test_an_odd_entity_is_removed_as_it_is_listed_and_the_log_keeps_what_was_there(
    service: RunningService, raw: RawQuotas, subtests: pytest.Subtests
) -> None:
    for name, odd in ODD.items():
        with subtests.test(name):
            raw.store(odd.names, odd.values)
            result = applied(service, odd.names, dict.fromkeys(odd.values))
            assert (result["entity"], result["changed"]) == (odd.names, True)
            assert (result["before"], result["after"]) == (odd.described, {})
            assert raw.stored(odd.names) == {}
            (row,) = rows(service, action="alter", page_size=1)
            found = (row["entity"], row["before"], row["after"])
            assert found == (odd.names, odd.described, {})


def test_an_odd_value_survives_the_change_of_another_key(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    raw.store(names, {C: 1235.0000001, P: NAN, R: INFINITY})
    result = applied(service, names, {M: 2})
    assert result["after"] == {C: 1235.0000001, M: 2, P: "NaN", R: "Infinity"}
    (row,) = rows(service, entity=f"user={names['user']}")
    assert (row["before"], row["after"]) == (result["before"], result["after"])
    assert printed(raw.stored(names)) == printed({C: 1235.0000001, M: 2.0, P: NAN, R: INFINITY})


def test_c028_nan_equals_nan_so_storing_it_again_changes_nothing(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    raw.store(names, {P: NAN})
    raw.store(names, {P: NAN})
    answer = service.alter({**change(names, {C: 5}), "expected": {P: "NaN", C: None}})
    assert answer.status_code == 200
    assert answer.json()["results"][0]["before"] == {P: "NaN"}


def test_removing_the_canonical_spelling_leaves_the_odd_one_alone(
    service: RunningService, raw: RawQuotas
) -> None:
    odd, canonical = {"ip": "2001:db8:0:0:0:0:77:1"}, {"ip": "2001:db8::77:1"}
    raw.store(odd, {I: 5.0})
    result = applied(service, canonical, {I: None})
    assert (result["entity"], result["changed"]) == (canonical, False)
    assert raw.stored(odd) == {I: 5.0}
    applied(service, odd, {I: None})
    assert raw.stored(odd) == {}


def test_setting_an_odd_spelling_writes_the_canonical_address(
    service: RunningService, raw: RawQuotas
) -> None:
    odd, canonical = {"ip": "2001:db8:0:0:0:0:77:2"}, {"ip": "2001:db8::77:2"}
    raw.store(odd, {I: 5.0})
    assert applied(service, odd, {I: 6})["entity"] == canonical
    assert (raw.stored(odd), raw.stored(canonical)) == ({I: 5.0}, {I: 6.0})
    assert service.alter(change(odd, {I: None}), change(canonical, {I: None})).status_code == 200
    assert raw.stored(odd) == raw.stored(canonical) == {}


TEXTS = {
    "the word for the default": "<default>",
    "a slash": "a/b/../c",
    "an encoded slash": "a%2Fb%252F",
    "marks of a query": "a?b#c;d=e&f+g h",
    "marks of a filter": "=user:any^=x",
    "quotes": "\"'`\\",
    "SQL": "'; drop table audit_event; --",
    "wildcards of SQL": "%_\\%",
    "a formula": "=cmd|'/c calc'!A1",
    "a template": "{{7*7}} ${jndi:ldap://x} $(id)",
    "markup": "<script>alert(1)</script>",
    "a line of a log": "x\r\nlevel=error msg=forged",
    "control characters": "\x01\x07\x1b[31m\x7f\x85",
    "blanks": "  ",
    "no-break and zero-width": "\u00a0\u200b\ufeff",
    "from right to left": "\u202egnp.exe",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "beyond the basic plane": "\U0001f600",
    "no character": "\uffff\ufffe",
    "a surrogate pair as written in JSON": "\\ud83d\\ude00",
    "a principal": "User:alice",
    "a distinguished name": "CN=a\\,b,OU=x,O=Ünïcode GmbH",
    "JSON": '{"user": null}',
}


def test_a_name_comes_back_as_it_went_in(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for name, text in TEXTS.items():
        with subtests.test(name):
            client_id = unique("odd")
            entity = {"user": text, "client-id": client_id}
            applied(service, entity, {R: 50})
            try:
                bob, names = service.api("bob"), [f"user={text}", f"client-id={client_id}"]
                (described,) = bob.get("/quotas", params={"filter": names}).json()["quotas"]
                assert described["entity"] == entity
                resolved = bob.get("/quotas/resolve", params=entity).json()
                assert resolved["quotas"][R]["source"]["entity"] == entity
                (row,) = rows(service, entity=names)
                assert row["entity"] == entity
                path = f"/quotas/alterations/{row['alteration_id']}"
                (result,) = service.api().get(path).json()["results"]
                assert result["entity"] == entity
            finally:
                applied(service, entity, {R: None})
