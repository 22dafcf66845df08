"""Request bodies: strict JSON, their limits, and large bodies that wait for a slot."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from app.domain.errors import MAX_VIOLATIONS, InvalidRequestError, UnreadableRequestError
from app.http.errors import BodyTooLargeError, RequestTimeoutError
from app.http.rate_limits import MOST_AT_A_TIME, BodySlot, Turn, Turns
from app.http.request_body import MAX_BODY_BYTES, SMALL_BYTES, VERY_LARGE_BYTES, read_json_body
from app.http.validation import MAX_VALUES, JsonObject, parse_json, parse_object
from tests.testkit.event_loops import until_quiet
from tests.unit.http.fake_service import Answer, FakeService, RawHeaders, send

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def faults(body: bytes) -> list[tuple[str, str]]:
    with pytest.raises(UnreadableRequestError) as caught:
        parse_object(body)
    assert caught.value.code == "unreadable-request"
    return [(violation.pointer, violation.code) for violation in caught.value.violations]


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans())
def test_every_json_object_is_read_as_it_was_written(document: JsonObject, ascii_only: bool):
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert parse_object(body) == document


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_number_keeps_every_digit(number: Decimal):
    assert parse_json(str(number).encode()).compare_total(number) == 0


def test_an_odd_number_is_read_exactly(subtests: pytest.Subtests):
    for text in [
        "1" * 5000,
        "1e999",
        "-0.0",
        "5e-324",
        "0." + "0" * 4999 + "1",
        "9007199254740993",
    ]:
        with subtests.test(text=text):
            assert str(parse_object(f'{{"n":{text}}}'.encode())["n"]) == str(Decimal(text))


def test_a_number_far_outside_float64_is_read_as_the_outermost_power(subtests: pytest.Subtests):
    for text, number in [
        ("1e99999999999999999999", "1E+9999"),
        ("-1e99999999999999999999", "-1E+9999"),
        ("1e-99999999999999999999", "1E-9999"),
        ("1E-10001", "1E-9999"),
        ("0e99999999999999999999", "0"),
        ("-0.0e20000", "-0"),
        ("1" * 20000, "1E+9999"),
    ]:
        with subtests.test(text=text, number=number):
            assert str(parse_object(f'{{"n":{text}}}'.encode())["n"]) == number


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_a_literal_that_json_lacks_is_refused_with_its_pointer(literal: str):
    assert faults(f'{{"a":[0,{{"b/~":{literal}}}]}}'.encode()) == [("/a/1/b~1~0", "not-json")]


def test_every_repeated_key_is_refused_with_its_pointer():
    body = b'{"a":{"x":1,"x":{"y":1,"y":2,"y":3}},"b":[{"c":1,"c":1}],"a":null}'
    assert faults(body) == [
        ("/a", "duplicate-json-key"),
        ("/a/x", "duplicate-json-key"),
        ("/a/x/y", "duplicate-json-key"),
        ("/b/0/c", "duplicate-json-key"),
    ]


def test_keys_that_differ_as_text_only_are_repeated():
    assert faults(b'{"a":1,"\\u0061":2}') == [("/a", "duplicate-json-key")]


NO_NUMBERS = "01 1. .5 +1 0x10 1_000 1e 1,5 nan undefined \u0661"

UNREADABLE = {
    "not-json": [
        *(b"", b"{} {}", b"{}x", b"{,}", b"{'a':1}", b'{"a":1,}', b'{"a":1', b"{}\0", b"/* */{}"),
        *(b'{"a":"\x01"}', b'{"a":"b\nd"}', rb'{"a":"b\xd"}', rb'{"a":"b\ud8"}', b'{"a":1 000}'),
        *(b"alterations=1", b"alterations: []", b"\xef\xbb\xbf{}", "{}".encode("utf-16-le")),
        *("{}\N{NO-BREAK SPACE}".encode(), b'{"a":' + b"[]," * 100 + b"]}"),
        *(f'{{"a":{number}}}'.encode() for number in NO_NUMBERS.split()),
    ],
    "not-utf-8": [
        *("{}".encode("utf-16"), "{}".encode("utf-32")),
        *(b'{"a":"b\xc0\xafd"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xff"}'),
    ],
    "wrong-type": [b"1", b"[]", b'"text"', b"null", b"true"],
}


def test_what_is_not_one_json_object_in_utf_8_is_refused(subtests: pytest.Subtests):
    for code, bodies in UNREADABLE.items():
        for body in bodies:
            with subtests.test(body=body, code=code):
                assert faults(body) == [("", code)]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "The body is not JSON: it is empty."),
        (b" \n", "The body is not JSON: it is empty."),
        (b'{"a":"\x01"}', "The body is not JSON: Invalid control character at line 1, column 7."),
    ],
)
def test_the_sentence_says_what_is_wrong(body: bytes, detail: str):
    with pytest.raises(UnreadableRequestError) as caught:
        parse_object(body)
    assert str(caught.value) == detail


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":1,"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=["balanced", "open-arrays", "open-objects", "repeated-keys"],
)
def test_nesting_that_cannot_be_followed_is_refused(body: bytes):
    assert faults(body) == [("", "nested-too-deeply")]


def test_many_siblings_are_not_nesting():
    assert len(parse_object(b'{"a":[' + b"[{}]," * 999 + b"[]]}")["a"]) == 1000


def test_a_lone_surrogate_stays_readable():
    assert parse_object(b'{"\\udfff":"a\\ud800"}') == {"\udfff": "a\ud800"}


def test_a_long_key_is_shortened_in_the_sentence_only():
    name = "k" * 1000
    with pytest.raises(UnreadableRequestError) as caught:
        parse_object(f'{{"{name}":1,"{name}":2}}'.encode())
    (violation,) = caught.value.violations
    assert violation.pointer == f"/{name}"
    assert len(violation.detail) < 150


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(body: bytes):
    with suppress(UnreadableRequestError):
        parse_json(body)


ALICE = (b"authorization", b"Bearer alice")
JSON = (b"content-type", b"application/json")


async def post(service: FakeService, headers: RawHeaders, *body: bytes) -> Answer:
    return await send(service.app, "POST", "/quotas/resolve", headers=[ALICE, *headers], body=body)


async def test_json_in_utf_8_is_read(service: FakeService):
    parameters = ("", "; charset=utf-8", ';charset="UTF-8"')
    for kind in ("Application/JSON", *(f"application/json{each}" for each in parameters)):
        headers = [(b"content-type", kind.encode()), (b"content-encoding", b"identity")]
        answer = await post(service, headers, b'{"identities"', b":[]}")
        assert (answer.status, answer.document["results"]) == (200, [])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        *(
            [(b"content-type", kind)]
            for kind in (
                *(b"", b"text/plain", b"application/x-www-form-urlencoded", b"application/jsonp"),
                *(b"application/json; charset=utf-16", b"application/json; charset=latin-1"),
                *(b"application/problem+json", b"application/json, text/plain"),
            )
        ),
        [JSON, JSON],
        [JSON, (b"content-encoding", b"gzip")],
        [JSON, (b"content-encoding", b"identity"), (b"content-encoding", b"br")],
    ],
)
async def test_another_media_type_is_refused(service: FakeService, headers: RawHeaders):
    answer = await post(service, headers, b"{}")
    assert (answer.status, answer.document["code"]) == (415, "unsupported-media-type")


async def test_a_body_that_announces_or_becomes_too_much_is_refused(service: FakeService):
    half = b" " * (MAX_BODY_BYTES // 2)
    for headers, body in [
        ([JSON, (b"content-length", b"%d" % (MAX_BODY_BYTES + 1))], ()),
        ([JSON, (b"content-length", b"9" * 5000)], ()),
        ([JSON], (half, half, b" ")),
    ]:
        answer = await post(service, headers, *body)
        assert (answer.status, answer.document["code"]) == (413, "body-too-large")


async def test_a_body_of_exactly_the_limit_is_read(service: FakeService):
    body = b'{"identities":[]}'.ljust(MAX_BODY_BYTES)
    headers = [JSON, (b"content-length", b"%d" % len(body))]
    assert (await post(service, headers, body)).status == 200


async def test_an_unreadable_body_is_a_problem_with_its_pointer(service: FakeService):
    for body, pointer in [
        (b'{"a":1,"a":2}', "/a"),
        (b"[" * 100_000, ""),
        (b"", ""),
        (b'{"\\ud800":1,"\\ud800":2}', "/\ud800"),
    ]:
        answer = await post(service, [JSON], body)
        assert (answer.status, answer.document["code"]) == (400, "unreadable-request")
        assert [error["pointer"] for error in answer.document["errors"]] == [pointer]


def request_of(
    *chunks: bytes, length: int | None = None, ends: bool = True
) -> tuple[Request, list[bytes]]:
    """Return a request with these chunks, and those that were not asked for yet."""
    waiting = list(chunks)

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        body = waiting.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(waiting) or not ends}

    headers = [JSON] if length is None else [JSON, (b"content-length", b"%d" % length)]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive), waiting


async def test_a_body_that_does_not_arrive_in_time_is_refused():
    request, _ = request_of(b"{", ends=False)
    with pytest.raises(RequestTimeoutError):
        await read_json_body(request, deadline_s=0.01)


async def test_the_limit_is_checked_while_reading():
    request, _ = request_of(b"{}", b"  ", ends=False)
    with pytest.raises(BodyTooLargeError):
        await read_json_body(request, limit=3)


class Bodies:
    """Callers that hold a slot until they are released."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.inside: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    async def hold(self, principal: str, *, very_large: bool = False) -> None:
        async with BodySlot(self.turns, principal) as slot:
            await slot.take(very_large=very_large)
            self.inside[principal] += 1
            await self.go_on.wait()
            self.inside[principal] -= 1


async def test_a_caller_holds_one_large_body_at_a_time_and_the_others_go_on():
    world = Bodies()
    tasks = [asyncio.create_task(world.hold("User:greedy")) for _ in range(100)]
    await until_quiet()
    assert world.inside == {"User:greedy": 1}
    tasks.append(asyncio.create_task(world.hold("User:alice")))
    await until_quiet()
    assert world.inside == {"User:greedy": 1, "User:alice": 1}
    world.go_on.set()
    await asyncio.gather(*tasks)
    assert not world.turns._semaphores


async def test_only_so_many_large_bodies_are_held_of_all_callers():
    world = Bodies()
    tasks = [asyncio.create_task(world.hold(f"User:{number}")) for number in range(20)]
    await until_quiet()
    assert world.inside.total() == MOST_AT_A_TIME[Turn.LARGE_BODY]
    world.go_on.set()
    await asyncio.gather(*tasks)
    assert not world.turns._semaphores


async def test_callers_of_very_large_bodies_cannot_hold_the_slots_of_all():
    world = Bodies()
    tasks = [
        asyncio.create_task(world.hold(f"User:{number}", very_large=True)) for number in range(20)
    ]
    await until_quiet()
    assert world.inside.total() == MOST_AT_A_TIME[Turn.VERY_LARGE_BODY]
    tasks.append(asyncio.create_task(world.hold("User:alice")))
    await until_quiet()
    assert world.inside["User:alice"] == 1
    world.go_on.set()
    await asyncio.gather(*tasks)


async def test_who_gives_up_waiting_takes_no_slot():
    world = Bodies()
    tasks = [asyncio.create_task(world.hold("User:alice")) for _ in range(3)]
    await until_quiet()
    while tasks:
        tasks[0].cancel()
        await asyncio.wait({tasks.pop(0)})
    world.go_on.set()
    await asyncio.wait_for(world.hold("User:alice"), 30)
    gc.collect()  # the traceback of a cancelled task leads to its lock
    assert not world.turns._semaphores


@pytest.fixture
async def slot() -> AsyncIterator[BodySlot]:
    async with BodySlot(Turns(), "User:alice") as slot:
        yield slot


def taken(turns: Turns) -> list[Turn]:
    """Return what has a turn, or waits for one."""
    return sorted((turn for turn, _ in turns._semaphores), key=list(Turn).index)


async def test_only_a_large_body_takes_the_slot(subtests: pytest.Subtests):
    for sizes, turn in [
        ((0,), []),
        ((SMALL_BYTES,), []),
        ((SMALL_BYTES, 1), [Turn.BODY, Turn.LARGE_BODY]),
        ((SMALL_BYTES + 1, 5, 5), [Turn.BODY, Turn.LARGE_BODY]),
    ]:
        with subtests.test(sizes=sizes):
            turns = Turns()
            async with BodySlot(turns, "User:alice") as slot:
                chunks = [b" " * size for size in sizes]
                request, _ = request_of(*chunks, length=sum(sizes))
                assert len(await read_json_body(request, slot)) == sum(sizes)
                assert taken(turns) == turn, "it is held until the body is parsed"
            assert not taken(turns)


@pytest.mark.parametrize(
    ("length", "very_large"),
    [(VERY_LARGE_BYTES, False), (VERY_LARGE_BYTES + 1, True), (None, True)],
)
async def test_a_body_is_very_large_that_says_so_or_says_nothing(
    length: int | None, very_large: bool
):
    turns = Turns()
    async with BodySlot(turns, "User:alice") as slot:
        request, _ = request_of(b" " * (SMALL_BYTES + 1), length=length)
        await read_json_body(request, slot)
        size = Turn.VERY_LARGE_BODY if very_large else Turn.LARGE_BODY
        assert taken(turns) == [Turn.BODY, size]


async def test_nothing_more_is_taken_in_while_no_slot_is_free():
    turns, chunks = Turns(), [b" " * size for size in (SMALL_BYTES, 1, 1000)]
    async with AsyncExitStack() as others, BodySlot(turns, "User:alice") as slot:
        for _ in range(MOST_AT_A_TIME[Turn.LARGE_BODY]):
            await others.enter_async_context(turns.of(Turn.LARGE_BODY))
        request, waiting = request_of(*chunks, length=SMALL_BYTES + 1001)
        with pytest.raises(RequestTimeoutError):
            await read_json_body(request, slot, deadline_s=0.01)
    assert waiting == [chunks[-1]]


async def test_the_slot_is_free_again_after_a_body_that_is_too_large():
    turns = Turns()
    async with BodySlot(turns, "User:alice") as slot:
        request, waiting = request_of(b" " * (SMALL_BYTES + 1), b" " * SMALL_BYTES)
        with pytest.raises(BodyTooLargeError):
            await read_json_body(request, slot, limit=SMALL_BYTES + 2)
        assert not waiting, "its size was not announced"
    assert not taken(turns)


async def test_who_sends_a_byte_at_a_time_does_not_hold_a_slot_for_long(
    slot: BodySlot, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.http.request_body._GRACE_S", 0.05)
    sent = 0

    async def receive() -> Message:
        nonlocal sent
        sent += 1
        await asyncio.sleep(0.01 if sent > 1 else 0)
        return {
            "type": "http.request",
            "body": b" " * (20_000 if sent == 1 else 1),
            "more_body": True,
        }

    request = Request({"type": "http", "method": "POST", "headers": [JSON]}, receive)
    with pytest.raises(RequestTimeoutError, match="too slowly"):
        async with asyncio.timeout(30):
            await read_json_body(request, slot, deadline_s=3600)


def test_a_body_with_more_values_than_any_request_needs_is_refused_while_it_is_read():
    for item in (b'{"a":1}', b"1"):
        body = b'{"alterations": [' + b",".join([item] * (MAX_VALUES + 1)) + b"]}"
        with pytest.raises(InvalidRequestError) as refusal:
            parse_object(body)
        assert [violation.code for violation in refusal.value.violations] == ["too-many-changes"]


def test_repeated_keys_without_end_are_listed_up_to_a_bound():
    body = b"[" + b",".join([b'{"a":1,"a":1}'] * 5_000) + b"]"
    with pytest.raises(UnreadableRequestError) as refusal:
        parse_json(body)
    assert len(refusal.value.violations) == MAX_VIOLATIONS + 1
