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
from app.http.headers import LONGEST_KEY, fingerprint, names_tag, read_key, read_superseded
from app.http.quotas.formats import Format, entry_text, negotiate, quotas_etag
from app.http.request_body import parse_object
from tests.unit.http.application import send
from tests.unit.http.fake_service import FakeService, document

PARAMETERS = document()["components"]["parameters"]


def test_the_format_that_the_caller_likes_best_is_chosen(subtests: pytest.Subtests):
    for accept, media_type in [
        (None, Format.JSON),
        ("", Format.JSON),
        ("*/*", Format.JSON),
        ("application/json", Format.JSON),
        ("application/json;charset=utf-8", Format.JSON),
        ("APPLICATION/YAML", Format.YAML),
        ("application/x-ndjson", Format.NDJSON),
        ("text/csv", Format.CSV),
        ("text/*", Format.CSV),
        ("application/*", Format.JSON),
        ("text/html, application/yaml;q=0.1", Format.YAML),
        ("text/csv;q=0.5, application/yaml;q=0.6", Format.YAML),
        ("application/yaml, text/csv", Format.CSV),
        ("application/json;q=0, */*", Format.NDJSON),
        ("application/*;q=0, */*;q=0.1", Format.CSV),
        ("*/*;q=0.1, application/*;q=0.9, application/json;q=0.2", Format.NDJSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format.JSON),
        ("text/csv ; q=1.000", Format.CSV),
        ("nonsense, text/csv", Format.CSV),
    ]:
        with subtests.test(accept=accept):
            assert negotiate(accept) is media_type


def test_a_caller_who_accepts_none_of_the_formats_is_refused(subtests: pytest.Subtests):
    for accept in [
        "text/html",
        "application/xml, image/*",
        "*/*;q=0",
        "text/csv;q=0.000",
        "nonsense",
        "text/csv;q=2",
        "application/json;q=-1",
        "application/",
    ]:
        with subtests.test(accept=accept), pytest.raises(NotAcceptableError) as refusal:
            negotiate(accept)
        assert all(media_type in refusal.value.detail for media_type in Format)


async def test_the_caller_is_judged_before_the_format(service: FakeService):
    for caller, status in ((b"stranger", 401), (b"carol", 403), (b"alice", 406)):
        headers = [(b"authorization", b"Bearer " + caller), (b"accept", b"text/html")]
        assert (await send(service.app, "GET", "/quotas", headers=headers)).status == status


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


def test_a_list_that_names_the_tag_matches(subtests: pytest.Subtests):
    for header in [
        "*",
        " * ",
        '"a"',
        'W/"a"',
        '"b", "a"',
        '"b",W/"a" , "c"',
        ', "a",',
        '"x,y", "a"',
    ]:
        with subtests.test(header=header):
            assert names_tag(header, '"a"')


def test_a_weak_tag_is_none_for_strong_comparison():
    assert names_tag('W/"b", "a"', '"a"', strong=True)
    assert not names_tag('W/"a"', '"a"', strong=True)


def test_anything_else_does_not(subtests: pytest.Subtests):
    for header in [
        None,
        "",
        "a",
        '"b"',
        '"A"',
        'w/"a"',
        '"ba"',
        '"b" "a"',
        'x, "a"',
        '"a',
        '"b\\"a"',
    ]:
        with subtests.test(header=header):
            assert not names_tag(header, '"a"')


ALTERATION_ID = "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f"

GOOD_KEYS = {
    b"a": "a",
    b"x" * LONGEST_KEY: "x" * LONGEST_KEY,
    b"8e03978e-40d5-43dd-bc93-6894a57f9324": "8e03978e-40d5-43dd-bc93-6894a57f9324",
    b"two words": "two words",
    b" \tpadded\t ": "padded",
    b'"quoted"': "quoted",
    b'"a \\"quote\\" and a \\\\"': 'a "quote" and a \\',
    b'"' + b"x" * LONGEST_KEY + b'"': "x" * LONGEST_KEY,
    b'a"b': 'a"b',
    b"~!@#$%^&*()": "~!@#$%^&*()",
}

BAD_KEYS = [
    b"",
    b"   ",
    b'""',
    b'" "',
    b"x" * (LONGEST_KEY + 1),
    b'"' + b"x" * (LONGEST_KEY + 1) + b'"',
    b"a\x00b",
    b"a\x01",
    b"a\x1fb",
    b"\x1fa",
    b"a\tb",
    b"a\x7f",
    b"a\nb",
    "schl\N{LATIN SMALL LETTER U WITH DIAERESIS}ssel".encode(),
    "\N{KEY}".encode(),
    b"a\xa0",
    b"\x85a",
]


def key_text(*values: bytes) -> str | None:
    headers = Headers(raw=[(b"idempotency-key", value) for value in values])
    key = read_key(headers, "/quotas/alterations", {})
    return None if key is None else key.text


def test_a_key_is_printable_ascii_bare_or_quoted(subtests: pytest.Subtests):
    for raw_key, text in GOOD_KEYS.items():
        with subtests.test(raw_key=raw_key, text=text):
            assert key_text(raw_key) == text
            assert described("Idempotency-Key").is_valid(raw_key.decode().strip())


def test_anything_else_is_refused_and_never_read_as_another_key(subtests: pytest.Subtests):
    for key in BAD_KEYS:
        with subtests.test(key=key):
            assert not described("Idempotency-Key").is_valid(key.decode("latin-1"))
            with pytest.raises(UnreadableRequestError) as raised:
                key_text(key)
            assert raised.value.code == "bad-idempotency-key"
            assert [violation.pointer for violation in raised.value.violations] == [
                "Idempotency-Key"
            ]


def test_no_header_is_no_key():
    assert key_text() is None


@pytest.mark.parametrize("second", [b"b", b"a", b""])
def test_two_headers_are_refused_even_where_they_are_equal(second: bytes):
    with pytest.raises(UnreadableRequestError):
        key_text(b"a", second)


def described(name: str) -> Draft202012Validator:
    return Draft202012Validator(PARAMETERS[name]["schema"])


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=300))
def test_every_key_that_the_document_allows_is_read(text: str):
    if described("Idempotency-Key").is_valid(text):
        assert key_text(text.encode("ascii"))


def superseded(*values: bytes) -> str | None:
    return read_superseded(Headers(raw=[(b"supersede", value) for value in values]))


def test_supersede_takes_the_id_of_one_alteration():
    assert superseded() is None
    assert superseded(ALTERATION_ID.encode()) == ALTERATION_ID
    assert superseded(b" %s " % ALTERATION_ID.upper().encode()) == ALTERATION_ID


def test_supersede_takes_nothing_else(subtests: pytest.Subtests):
    for values in [
        [b""],
        [b"the last one"],
        [ALTERATION_ID.encode()] * 2,
        [b"{%s}" % ALTERATION_ID.encode()],
        [b"urn:uuid:" + ALTERATION_ID.encode()],
        [ALTERATION_ID.replace("-", "").encode()],
        [ALTERATION_ID.encode() + b", " + ALTERATION_ID.encode()],
        [ALTERATION_ID.encode() + b"\xa0"],
    ]:
        with subtests.test(values=values):
            with pytest.raises(UnreadableRequestError) as raised:
                superseded(*values)
            assert raised.value.code == "bad-supersede"


ROUTE = "/quotas/alterations"


def of(text: str, route: str = ROUTE) -> bytes:
    return fingerprint(route, parse_object(text.encode()))


def test_bodies_that_are_equal_as_json_have_one_fingerprint(subtests: pytest.Subtests):
    for left, right in [
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('{"a":{"x":1,"y":[1,2]}}', '{ "a" : {"y":[ 1 ,2], "x" :1}\n}'),
        ('{"a":1e6}', '{"a":1000000}'),
        ('{"a":1.0}', '{"a":1}'),
        ('{"a":1000e-3}', '{"a":1}'),
        ('{"a":-0}', '{"a":0.000}'),
        ('{"a":0.1}', '{"a":1e-1}'),
        ('{"a":9223372036854775807}', '{"a":9.223372036854775807E18}'),
        ('{"\\u0061":"\\u00e9"}', '{"a":"\u00e9"}'),
        ('{"a":"\\/"}', '{"a":"/"}'),
    ]:
        with subtests.test(left=left, right=right):
            assert of(left) == of(right)


def test_bodies_that_differ_as_json_have_different_fingerprints(subtests: pytest.Subtests):
    for left, right in [
        ('{"a":null}', "{}"),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":0}', '{"a":false}'),
        ('{"a":0}', '{"a":null}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":[]}', '{"a":{}}'),
        ('{"a":[[]]}', '{"a":[]}'),
        ('{"a":1}', '{"a":-1}'),
        ('{"a":9223372036854775807}', '{"a":9223372036854775808}'),
        ('{"a":0.1}', '{"a":0.10000000000000001}'),
        ('{"a":1}', '{"a":{"number":"1e0"}}'),
        ('{"a":{"b":1}}', '{"a":{"object":{"b":1}}}'),
        ('{"a":"\u00e9"}', '{"a":"e\u0301"}'),
        ('{"a":"\\ud800"}', '{"a":"\\ud801"}'),
        ('{"a":"b"}', '{"a":"B"}'),
    ]:
        with subtests.test(left=left, right=right):
            assert of(left) != of(right)


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
