"""How much is read: bodies up to 8 MiB, heads up to 32 KiB."""

import gzip
import json

import httpx
import pytest

from tests.integration.http.bad_input.conftest import Post
from tests.testkit.http import assert_refused, exchange, head, problem_of
from tests.testkit.service import RunningService

MEBIBYTE = 1024 * 1024
LIMIT = 8 * MEBIBYTE
ALTER = "POST /quotas/alterations HTTP/1.1"
DESCRIBE = "GET /quotas?filter=user=bad HTTP/1.1"
JSON = "Content-Type: application/json"


def test_a_body_of_just_eight_mebibytes_is_judged(post: Post) -> None:
    body = json.dumps({"alterations": []})
    answer = post(body + " " * (LIMIT - len(body)))
    assert_refused(answer, 422, {("/alterations", "no-alterations")})


def test_a_byte_more_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for path in ["/quotas/alterations", "/quotas/resolve"]:
        with subtests.test(path=path):
            problem = problem_of(post(b" " * (LIMIT + 1), path), 413)
            assert (problem["code"], problem["sent_to_cluster"]) == ("body-too-large", "no")


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for announced in [LIMIT + 1, 10**12, 2**63, 2**64 - 1]:
        with subtests.test(announced=announced):
            answer = exchange(service, head(ALTER, JSON, f"Content-Length: {announced}"))
            assert problem_of(answer, 413)["code"] == "body-too-large"


def test_a_body_without_a_length_is_refused_where_it_grows_too_large(
    service: RunningService,
) -> None:
    chunk = b"%x\r\n%s\r\n" % (MEBIBYTE, b" " * MEBIBYTE)
    start = head(ALTER, JSON, "Transfer-Encoding: chunked")
    answer = exchange(service, start, *[chunk] * 9)
    assert problem_of(answer, 413)["code"] == "body-too-large"


def test_a_bomb_is_refused_unpacked(post: Post) -> None:
    bomb = gzip.compress(b" " * 64 * MEBIBYTE)
    problem = problem_of(post(bomb, Content_Encoding="gzip"), 415)
    assert problem["code"] == "unsupported-media-type"


HEADERS = {
    "one of 33 KB": [f"X-Long: {'x' * 33_000}"],
    "one of 100 KB": [f"X-Long: {'x' * 100_000}"],
    "one of 1 MB": [f"X-Long: {'x' * 1_000_000}"],
    "one long name": [f"{'x' * 33_000}: 1"],
    "5,000 short ones": [f"X-{number}: {number}" for number in range(5_000)],
    "one name 5,000 times": ["Accept: */*"] * 5_000,
}


def test_a_head_over_32_kib_is_refused(service: RunningService, subtests: pytest.Subtests) -> None:
    for name, headers in HEADERS.items():
        with subtests.test(name=name):
            answer = exchange(service, head(DESCRIBE, *headers))
            assert problem_of(answer, 431)["code"] == "headers-too-large"


def test_a_path_over_32_kib_is_refused(service: RunningService) -> None:
    answer = exchange(service, head(f"GET /quotas?filter=user={'x' * 33_000} HTTP/1.1"))
    assert problem_of(answer, 431)["code"] == "headers-too-large"


def test_a_head_of_31_kib_is_read(service: RunningService) -> None:
    assert exchange(service, head(DESCRIBE, f"X-Long: {'x' * 31_000}")).status_code == 200


def test_each_of_ten_thousand_changed_keys_is_validated(post: Post) -> None:
    ops = [{"key": "producer_byte_rate", "value": 0}, {"key": "consumer_byte_rate", "value": 1}]
    alterations = [{"entity": {"user": f"bad-{number}"}, "ops": ops} for number in range(5_000)]
    answer: httpx.Response = post({"alterations": alterations})
    violations = {(f"/alterations/{number}/ops/0/value", "not-positive") for number in range(1_000)}
    problem = assert_refused(answer, 422, violations | {("", "more")})
    assert problem["errors"][-1]["detail"] == "At least 4000 more are not listed."
