"""Content negotiation, entity tags, and the keys that make two requests the same."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.datastructures import Headers

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import UnreadableRequestError
from app.http.errors import NotAcceptableError
from app.http.headers import names_tag
from app.http.quotas.formats import Format, entry_text, negotiate, quotas_etag
from app.http.request_body import LONGEST_KEY, fingerprint, read_key, read_superseded
from app.http.validation import parse_object
from tests.unit.http.fake_service import FakeService, document, send

PARAMETERS = document()["components"]["parameters"]


ACCEPTED = {
    Format.JSON: [
        *(None, "", "*/*", "application/*", "application/json", "application/json;charset=utf-8"),
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ],
    Format.YAML: [
        *("APPLICATION/YAML", "text/html, application/yaml;q=0.1"),
        "text/csv;q=0.5, application/yaml;q=0.6",
    ],
    Format.NDJSON: [
        *("application/x-ndjson", "application/json;q=0, */*"),
        "*/*;q=0.1, application/*;q=0.9, application/json;q=0.2",
    ],
    Format.CSV: [
        *("text/csv", "text/*", "text/csv ; q=1.000", "nonsense, text/csv"),
        *("application/yaml, text/csv", "application/*;q=0, */*;q=0.1"),
    ],
}
NOT_ACCEPTABLE = [
    *("text/html", "application/xml, image/*", "application/", "nonsense"),
    *("*/*;q=0", "text/csv;q=0.000", "text/csv;q=2", "application/json;q=-1"),
]


def test_the_format_that_the_caller_likes_best_is_chosen(subtests: pytest.Subtests):
    for media_type, headers in ACCEPTED.items():
        for accept in headers:
            with subtests.test(accept=accept):
                assert negotiate(accept) is media_type


def test_a_caller_who_accepts_none_of_the_formats_is_refused(subtests: pytest.Subtests):
    for accept in NOT_ACCEPTABLE:
        with subtests.test(accept=accept), pytest.raises(NotAcceptableError) as refusal:
            negotiate(accept)
        assert all(media_type in refusal.value.detail for media_type in Format)


async def test_the_caller_is_judged_before_the_format(service: FakeService):
    for caller, status in (("stranger", 401), ("carol", 403), ("alice", 406)):
        assert (await service.get("/quotas", caller, accept="text/html")).status == status


@given(st.text(st.characters(codec="latin-1")))
def test_no_header_raises_anything_else(accept: str | None):
    with suppress(NotAcceptableError):
        assert negotiate(accept) in Format


async def test_a_list_may_stand_on_several_lines(service: FakeService):
    """Source: RFC 9110 5.3."""
    alice = (b"authorization", b"Bearer alice")
    accept = [(b"accept", b"text/html"), (b"accept", b"application/yaml")]
    answer = await send(service.app, "GET", "/quotas", headers=[alice, *accept])
    assert answer.headers["content-type"] == "application/yaml"
    etag = (await service.get("/quotas")).headers["etag"].encode()
    tags = [(b"if-none-match", b'"other"'), (b"if-none-match", etag)]
    assert (await send(service.app, "GET", "/quotas", headers=[alice, *tags])).status == 304


ALICE = ClientQuotaEntity.of({"user": "alice"})
TEXTS = [entry_text(ALICE, {"producer_byte_rate": 1.0})]
TAG = quotas_etag(Format.JSON, "c1", TEXTS)


def test_the_same_answer_has_the_same_strong_tag():
    assert quotas_etag(Format.JSON, "c1", iter(TEXTS)) == TAG
    assert TAG.startswith('"')


def test_another_answer_has_another_tag(subtests: pytest.Subtests):
    default = ClientQuotaEntity.of({"user": None})
    for other in [
        quotas_etag(Format.CSV, "c1", TEXTS),
        quotas_etag(Format.JSON, "c2", TEXTS),
        quotas_etag(Format.JSON, "c1", TEXTS, page="10:0"),
        quotas_etag(Format.JSON, "c1", []),
        quotas_etag(Format.JSON, "c1", TEXTS * 2),
        quotas_etag(Format.JSON, "c1", [entry_text(ALICE, {"producer_byte_rate": 2.0})]),
        quotas_etag(Format.JSON, "c1", [entry_text(ALICE, {"consumer_byte_rate": 1.0})]),
        quotas_etag(Format.JSON, "c1", [entry_text(default, {"producer_byte_rate": 1.0})]),
    ]:
        with subtests.test(other=other):
            assert other != TAG


async def test_a_page_has_another_tag_than_a_whole_answer(service: FakeService):
    whole, page = [await service.get(path) for path in ("/quotas", "/quotas?page_size=1000")]
    assert whole.document["quotas"] == page.document["quotas"]
    assert whole.headers["etag"] != page.headers["etag"]


MATCHES = [
    *("*", " * ", '"a"', 'W/"a"', '"b", "a"', '"b",W/"a" , "c"', ', "a",', '"x,y", "a"'),
]
MATCHES_NOT = [
    *(None, "", "a", '"b"', '"A"', 'w/"a"', '"ba"', '"b" "a"', 'x, "a"', '"a', '"b\\"a"'),
]


def test_a_list_matches_that_names_the_tag_and_no_other(subtests: pytest.Subtests):
    for header in MATCHES + MATCHES_NOT:
        with subtests.test(header=header):
            assert names_tag(header, '"a"') == (header in MATCHES)


def test_a_weak_tag_is_none_for_strong_comparison():
    assert names_tag('W/"b", "a"', '"a"', strong=True)
    assert not names_tag('W/"a"', '"a"', strong=True)


ALTERATION_ID = "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f"

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
LONGEST, TOO_LONG = "x" * LONGEST_KEY, "x" * (LONGEST_KEY + 1)

GOOD_KEYS = {
    **{key: key for key in ("a", LONGEST, UUID, "two words", 'a"b', "~!@#$%^&*()")},
    " \tpadded\t ": "padded",
    '"quoted"': "quoted",
    f'"{LONGEST}"': LONGEST,
    '"a \\"quote\\" and a \\\\"': 'a "quote" and a \\',
}
BAD_KEYS = [
    *("", "   ", '""', '" "', TOO_LONG, f'"{TOO_LONG}"', "a\x00b", "a\x01", "a\x1fb", "\x1fa"),
    *("a\tb", "a\x7f", "a\nb", "schl\u00fcssel", "\u00f0\u009f\u0094\u0091", "a\xa0", "\x85a"),
]


def key_text(*values: str) -> str | None:
    headers = Headers(raw=[(b"idempotency-key", value.encode("latin-1")) for value in values])
    key = read_key(headers, "/quotas/alterations", {})
    return None if key is None else key.text


def test_a_key_is_printable_ascii_bare_or_quoted(subtests: pytest.Subtests):
    for raw_key, text in GOOD_KEYS.items():
        with subtests.test(raw_key=raw_key, text=text):
            assert key_text(raw_key) == text
            assert described("Idempotency-Key").is_valid(raw_key.strip())


def test_anything_else_is_refused_and_never_read_as_another_key(subtests: pytest.Subtests):
    for key in BAD_KEYS:
        with subtests.test(key=key):
            assert not described("Idempotency-Key").is_valid(key)
            with pytest.raises(UnreadableRequestError) as raised:
                key_text(key)
            assert raised.value.code == "bad-idempotency-key"
            assert [violation.pointer for violation in raised.value.violations] == [
                "Idempotency-Key"
            ]


def test_no_header_is_no_key():
    assert key_text() is None


@pytest.mark.parametrize("second", ["b", "a", ""])
def test_two_headers_are_refused_even_where_they_are_equal(second: str):
    with pytest.raises(UnreadableRequestError):
        key_text("a", second)


def described(name: str) -> Draft202012Validator:
    return Draft202012Validator(PARAMETERS[name]["schema"])


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=300))
def test_every_key_that_the_document_allows_is_read(text: str):
    if described("Idempotency-Key").is_valid(text):
        assert key_text(text)


def superseded(*values: str) -> str | None:
    return read_superseded(Headers(raw=[(b"supersede", v.encode("latin-1")) for v in values]))


NO_ALTERATION_IDS = [
    *("", "the last one", f"{{{ALTERATION_ID}}}", f"urn:uuid:{ALTERATION_ID}"),
    *(ALTERATION_ID.replace("-", ""), f"{ALTERATION_ID}, {ALTERATION_ID}", f"{ALTERATION_ID}\xa0"),
]


def test_supersede_takes_the_id_of_one_alteration_and_nothing_else(subtests: pytest.Subtests):
    assert superseded() is None
    assert superseded(ALTERATION_ID) == superseded(f" {ALTERATION_ID.upper()} ") == ALTERATION_ID
    for values in [[ALTERATION_ID] * 2, *([text] for text in NO_ALTERATION_IDS)]:
        with subtests.test(values=values):
            with pytest.raises(UnreadableRequestError) as raised:
                superseded(*values)
            assert raised.value.code == "bad-supersede"


ROUTE = "/quotas/alterations"


def of(text: str, route: str = ROUTE) -> bytes:
    return fingerprint(route, parse_object(text.encode()))


LIKE_NO_OTHER = r"""
    {} {"a":null} {"a":true} {"a":false} {"a":-1} {"a":"1"} {"a":"b"} {"a":"B"} {"a":[]} {"a":{}}
    {"a":[[]]} {"a":[1,2]} {"a":[2,1]} {"a":{"b":1}} {"a":{"number":"1e0"}}
    {"a":{"object":{"b":1}}} {"a":0.10000000000000001} {"a":9223372036854775808}
    {"a":"\ud800"} {"a":"\ud801"} {"a":"e\u0301"}
"""
BODIES = [
    *([text] for text in LIKE_NO_OTHER.split()),
    ['{"a":1,"b":2}', '{"b":2,"a":1}'],
    ['{"a":{"x":1,"y":[1,2]}}', '{ "a" : {"y":[ 1 ,2], "x" :1}\n}'],
    ['{"a":1e6}', '{"a":1000000}'],
    ['{"a":1}', '{"a":1.0}', '{"a":1000e-3}'],
    ['{"a":0}', '{"a":-0}', '{"a":0.000}'],
    ['{"a":0.1}', '{"a":1e-1}'],
    ['{"a":9223372036854775807}', '{"a":9.223372036854775807E18}'],
    ['{"\\u0061":"\\u00e9"}', '{"a":"\u00e9"}'],
    ['{"a":"\\/"}', '{"a":"/"}'],
]
"""Those of a list are equal as JSON, and no others."""


def test_bodies_that_are_equal_as_json_have_one_fingerprint_and_no_others():
    fingerprints = [{of(text) for text in equal} for equal in BODIES]
    assert [len(each) for each in fingerprints] == [1] * len(BODIES)
    assert len(set.union(*fingerprints)) == len(BODIES)


def test_the_route_counts_in_a_fingerprint():
    assert of("{}") != of("{}", f"{ROUTE}/{ALTERATION_ID}/revert")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON))
def test_blanks_and_order_never_count(body: dict[str, Any]):
    turned = dict(reversed(body.items()))
    assert of(json.dumps(body)) == of(json.dumps(turned, indent=3, ensure_ascii=False))


@given(st.dictionaries(st.text(max_size=2), JSON), st.dictionaries(st.text(max_size=2), JSON))
def test_equal_fingerprints_mean_equal_bodies(left: dict[str, Any], right: dict[str, Any]):
    left_body, right_body = (parse_object(json.dumps(body).encode()) for body in (left, right))
    equal = fingerprint(ROUTE, left_body) == fingerprint(ROUTE, right_body)
    assert equal == (typed(left_body) == typed(right_body))


def typed(value: Any) -> Any:
    """Tell true from 1, which Python holds for equal."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (type(value), value)
