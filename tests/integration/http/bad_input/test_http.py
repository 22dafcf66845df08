"""Requests whose HTTP is odd: two lengths, two credentials, methods and forms of address."""

import pytest

from tests.testkit.http import assert_refused, connected, exchange, head, problem_of, read_answer
from tests.testkit.service import RunningService

ALTER = "POST /quotas/alterations HTTP/1.1"
DESCRIBE = "GET /quotas?filter=user=bad HTTP/1.1"
JSON = "Content-Type: application/json"
BODY = b'{"alterations": [{"entity": {"user": "bad"}, "ops": []}]}'
LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def test_a_body_may_come_in_chunks(service: RunningService) -> None:
    start = head(ALTER, JSON, "Transfer-Encoding: chunked")
    answer = exchange(service, start, CHUNKED)
    assert_refused(answer, 422, {("/alterations/0/ops", "no-ops")})


AMBIGUOUS = {
    "a length and chunks": ([LENGTH, "Transfer-Encoding: chunked"], CHUNKED),
    "chunks and a length": (["Transfer-Encoding: chunked", LENGTH], CHUNKED),
    "a length of 0 and chunks": (["Content-Length: 0", "Transfer-Encoding: chunked"], CHUNKED),
    "two lengths": ([LENGTH, "Content-Length: 2"], BODY),
    "one length twice": ([LENGTH, LENGTH], BODY),
    "two lengths in one line": ([f"{LENGTH}, 2"], BODY),
    "a negative length": (["Content-Length: -1"], BODY),
    "a signed length": ([f"Content-Length: +{len(BODY)}"], BODY),
    "a length that is none": (["Content-Length: many"], BODY),
    "a hexadecimal length": (["Content-Length: 0x10"], BODY),
    "a length beyond 64 bits": ([f"Content-Length: {2**64 + len(BODY)}"], BODY),
    "an unknown transfer encoding": (["Transfer-Encoding: zip"], BODY),
    "a chunk without a length": (["Transfer-Encoding: chunked"], b"xyz\r\n\r\n"),
    "a chunk of negative length": (["Transfer-Encoding: chunked"], b"-1\r\n\r\n"),
    "two hosts": ([LENGTH, "Host: elsewhere"], BODY),
    "a folded header": (["X-Folded: a\r\n b", LENGTH], BODY),
    "a blank before the colon": ([LENGTH, "Content-Encoding : identity"], BODY),
    "a header without a name": ([LENGTH, ": nothing"], BODY),
    "a NUL in a header": ([LENGTH, "X-Nul: a\0b"], BODY),
}


def test_a_request_that_two_readers_could_read_differently_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for name, (headers, body) in AMBIGUOUS.items():
        with subtests.test(name=name):
            answer = exchange(service, head(ALTER, JSON, *headers), body)
            assert answer.status_code == 400, answer.text


def test_two_credentials_are_refused_whoever_they_are(service: RunningService) -> None:
    one_header = head(DESCRIBE, "Authorization: Bearer alice, Bearer alice", principal="")
    seconds = ("Bearer alice", "Bearer bob", "Basic YTpi", "")
    for start in (one_header, *(head(DESCRIBE, f"Authorization: {second}") for second in seconds)):
        answer = exchange(service, start)
        problem = assert_refused(answer, 400, {("authorization", "several-credentials")})
        assert problem["code"] == "several-credentials"


CREDENTIALS = [
    "Bearer",
    "Bearer ",
    "Bearer unknown",
    "Bearer ALICE",
    "Bearer alice bob",
    "Bearer alice;",
    "Bearer\talice",
    "Token alice",
    "alice",
    "Basic YWxpY2U6YWxpY2U=",
    "Bearer al\xefce",
    f"Bearer {'a' * 20_000}",
    "Bearer 2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90",
]


def test_two_credentials_in_one_header_are_refused(service: RunningService) -> None:
    start = head(DESCRIBE, "Authorization: Bearer alice, Bearer bob", principal="")
    assert problem_of(exchange(service, start), 400)["code"] == "several-credentials"


def test_a_credential_that_is_none_admits_nobody(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for credential in CREDENTIALS:
        with subtests.test(credential=credential):
            start = head(DESCRIBE, f"Authorization: {credential}", principal="")
            problem = problem_of(exchange(service, start), 401)
            assert problem["code"] == "invalid-token"
            assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")


def test_no_other_header_is_a_credential(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for header in [
        "X-Principal: User:alice",
        "Cookie: token=alice",
        "X-Authorization: Bearer alice",
    ]:
        with subtests.test(header=header):
            answer = exchange(service, head(DESCRIBE, header, principal=""))
            assert problem_of(answer, 401)["code"] == "unauthenticated"
            assert answer.headers["WWW-Authenticate"] == "Bearer"


METHODS = {
    ("PUT", "/quotas"): "GET, HEAD",
    ("DELETE", "/quotas"): "GET, HEAD",
    ("POST", "/quotas"): "GET, HEAD",
    ("OPTIONS", "/quotas"): "GET, HEAD",
    ("TRACE", "/quotas"): "GET, HEAD",
    ("CONNECT", "/quotas"): "GET, HEAD",
    ("PROPFIND", "/quotas"): "GET, HEAD",
    ("GET", "/quotas/alterations"): "POST",
    ("PATCH", "/quotas/alterations"): "POST",
    ("DELETE", "/quotas/alterations/x"): "GET, HEAD",
    ("PUT", "/quotas/resolve"): "GET, HEAD, POST",
    ("DELETE", "/audit"): "GET, HEAD",
    ("POST", "/livez"): "GET, HEAD",
}


def test_a_method_that_a_path_does_not_take_is_refused_with_those_it_takes(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for (method, path), allowed in METHODS.items():
        with subtests.test(method=method, path=path):
            answer = exchange(service, head(f"{method} {path} HTTP/1.1"))
            assert problem_of(answer, 405)["code"] == "method-not-allowed"
            assert answer.headers["Allow"] == allowed


def test_head_gives_the_status_and_the_headers_of_get(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for path in ["/livez", "/quotas?filter=user", "/audit", "/docs", "/nowhere"]:
        with subtests.test(path=path):
            api = service.api("alice")
            by_get, by_head = api.get(path), api.head(path)
            assert (by_head.status_code, by_head.content) == (by_get.status_code, b"")
            assert set(by_head.headers) == set(by_get.headers)
            assert by_head.headers.get("ETag") == by_get.headers.get("ETag")


def test_head_is_refused_where_get_is(service: RunningService) -> None:
    answer = service.api("alice").head("/quotas/alterations")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_a_method_that_is_none_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for method in ["QUOTA", "get", "PO ST", "\xff"]:
        with subtests.test(method=method):
            assert exchange(service, head(f"{method} /quotas HTTP/1.1")).status_code == 400


def test_no_header_overrides_the_method(service: RunningService, subtests: pytest.Subtests) -> None:
    for header in [
        "X-HTTP-Method-Override: POST",
        "X-HTTP-Method: DELETE",
        "X-Method-Override: PUT",
    ]:
        with subtests.test(header=header):
            assert exchange(service, head(DESCRIBE, header)).json()["quotas"] == []


def test_what_is_no_request_line_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for line in ["GET /quotas HTTP/9.9", "GET", "", "\x16\x03\x01"]:
        with subtests.test(line=line):
            assert exchange(service, head(line)).status_code == 400


def test_an_absolute_address_means_its_path(service: RunningService) -> None:
    answer = exchange(service, head("GET http://elsewhere.example/quotas?filter=user=bad HTTP/1.1"))
    assert answer.json()["quotas"] == []
    assert problem_of(exchange(service, head("GET http://elsewhere/admin HTTP/1.1")), 404)


def test_an_offer_of_another_protocol_is_not_taken(service: RunningService) -> None:
    offers = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    assert exchange(service, head(DESCRIBE, *offers, key)).status_code in {200, 400, 403, 426}
    answer = exchange(service, head(DESCRIBE, "Upgrade: h2c", "Connection: Upgrade"))
    assert answer.status_code == 200


MEDIA = {
    "none": [],
    "an empty one": ["Content-Type:"],
    "text": ["Content-Type: text/plain"],
    "a form": ["Content-Type: application/x-www-form-urlencoded"],
    "multipart": ["Content-Type: multipart/form-data; boundary=x"],
    "JSON of another kind": ["Content-Type: application/problem+json"],
    "JSON lines": ["Content-Type: application/x-ndjson"],
    "YAML": ["Content-Type: application/yaml"],
    "another charset": ["Content-Type: application/json; charset=utf-16"],
    "Latin-1": ["Content-Type: application/json; charset=iso-8859-1"],
    "two": [JSON, JSON],
    "two in one line": ["Content-Type: application/json, text/plain"],
    "compressed": [JSON, "Content-Encoding: gzip"],
    "compressed twice": [JSON, "Content-Encoding: identity", "Content-Encoding: br"],
    "an unknown encoding": [JSON, "Content-Encoding: aes128gcm"],
}


def test_a_body_of_another_type_is_refused_unread(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for name, headers in MEDIA.items():
        with subtests.test(name=name):
            answer = exchange(service, head(ALTER, LENGTH, *headers), BODY)
            problem = problem_of(answer, 415)
            assert (problem["code"], problem["sent_to_cluster"]) == ("unsupported-media-type", "no")


def test_a_format_that_is_not_produced_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for accept in ["text/html", "application/xml, text/*;q=0", "application/json;q=0", "image/png"]:
        with subtests.test(accept=accept):
            answer = exchange(service, head(DESCRIBE, f"Accept: {accept}"))
            assert problem_of(answer, 406)["code"] == "not-acceptable"


def test_a_list_may_stand_on_several_lines(service: RunningService) -> None:
    """Source: RFC 9110 5.3."""
    answer = exchange(service, head(DESCRIBE, "Accept: text/html", "Accept: application/yaml"))
    assert answer.headers["Content-Type"] == "application/yaml"
    etag = f"If-None-Match: {exchange(service, head(DESCRIBE)).headers['ETag']}"
    answer = exchange(service, head(DESCRIBE, 'If-None-Match: "other"', etag))
    assert answer.status_code == 304


def test_a_request_id_that_could_mislead_is_replaced(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for request_id in ["a b", "x" * 129, "a/b", "<x>", "", "\xe9", "${jndi:ldap}"]:
        with subtests.test(request_id=request_id):
            answer = exchange(service, head(DESCRIBE, f"X-Request-Id: {request_id}"))
            assert answer.status_code == 200
            assert answer.headers["X-Request-Id"] != request_id


def test_requests_that_came_at_once_are_answered_in_order(service: RunningService) -> None:
    first, second = head("GET /livez HTTP/1.1"), head("GET /version HTTP/1.1")
    with connected(service) as connection:
        connection.sendall(first + second)
        with connection.makefile("rb") as stream:
            assert read_answer(stream).json()["status"] == "ok"
            assert read_answer(stream).json()["name"] == "kafka-quota-service"
