"""What is read of a body."""

import asyncio

import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Message

from app.http.errors import BodyTooLargeError, RequestTimeoutError
from app.http.limits import MAX_BODY_BYTES, read_json_body
from app.http.metrics import HttpMetrics
from tests.unit.http.application import around, send

JSON = (b"content-type", b"application/json")


@pytest.fixture
def app() -> ASGIApp:
    return around(HttpMetrics())


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/json",
        b"Application/JSON",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
    ],
)
async def test_json_in_utf_8_is_read(app: ASGIApp, content_type: bytes):
    headers = [(b"content-type", content_type), (b"content-encoding", b"identity")]
    answer = await send(app, "POST", "/echo", headers=headers, body=[b'{"a', b'":1}'])
    assert (answer.status, answer.document) == (200, ["a"])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"")],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [(b"content-type", b"application/json; charset=utf-16")],
        [(b"content-type", b"application/json; charset=latin-1")],
        [(b"content-type", b"application/jsonp")],
        [JSON, JSON],
        [JSON, (b"content-encoding", b"gzip")],
        [JSON, (b"content-encoding", b"identity"), (b"content-encoding", b"br")],
    ],
)
async def test_another_media_type_is_refused(app: ASGIApp, headers: list[tuple[bytes, bytes]]):
    answer = await send(app, "POST", "/echo", headers=headers, body=[b"{}"])
    assert (answer.status, answer.document["code"]) == (415, "unsupported-media-type")


async def test_a_body_that_announces_too_much_is_refused_unread(app: ASGIApp):
    for length in (b"%d" % (MAX_BODY_BYTES + 1), b"9" * 5000):
        headers = [JSON, (b"content-length", length)]
        answer = await send(app, "POST", "/echo", headers=headers)
        assert (answer.status, answer.document["code"]) == (413, "body-too-large")


async def test_a_body_that_grows_too_large_is_refused(app: ASGIApp):
    chunk = b" " * (MAX_BODY_BYTES // 2)
    answer = await send(app, "POST", "/echo", headers=[JSON], body=[chunk, chunk, b" "])
    assert (answer.status, answer.document["code"]) == (413, "body-too-large")


async def test_a_body_of_exactly_the_limit_is_read(app: ASGIApp):
    body = b'{"a":1}'.ljust(MAX_BODY_BYTES)
    headers = [JSON, (b"content-length", b"%d" % len(body))]
    assert (await send(app, "POST", "/echo", headers=headers, body=[body])).status == 200


async def test_an_unreadable_body_is_a_problem_with_its_place(app: ASGIApp):
    for body, pointer in [
        (b'{"a":1,"a":2}', "/a"),
        (b"[" * 100_000, ""),
        (b"", ""),
        (b'{"\\ud800":1,"\\ud800":2}', "/\ud800"),
    ]:
        answer = await send(app, "POST", "/echo", headers=[JSON], body=[body])
        assert (answer.status, answer.document["code"]) == (400, "unreadable-request")
        assert [one["pointer"] for one in answer.document["errors"]] == [pointer]


async def test_a_lone_surrogate_can_be_echoed(app: ASGIApp):
    answer = await send(app, "POST", "/echo", headers=[JSON], body=[b'{"\\ud800":1}'])
    assert (answer.status, answer.body) == (200, b'["\\ud800"]')


def slow_request(chunks: list[bytes]) -> Request:
    scope = {"type": "http", "method": "POST", "headers": [JSON]}

    async def receive() -> Message:
        if not chunks:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": chunks.pop(0), "more_body": True}

    return Request(scope, receive)


async def test_a_body_that_does_not_arrive_in_time_is_given_up():
    with pytest.raises(RequestTimeoutError):
        await read_json_body(slow_request([b"{"]), deadline_s=0.01)


async def test_the_limit_is_checked_while_reading():
    with pytest.raises(BodyTooLargeError):
        await read_json_body(slow_request([b"{}", b"  "]), limit=3)
