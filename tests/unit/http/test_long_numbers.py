"""Numbers of thousands of digits, wherever a caller can put one: none is a fault of ours.

Python turns no text of over 4,300 digits into an integer.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.http.fake_service import FakeService, document, resolved, send

ZEROS, NINES = "0" * 5000, "9" * 5000
INTEGERS = [ZEROS, NINES, f"-{ZEROS}", f"-{NINES}", f"{ZEROS}5", f"1{ZEROS}"]
JSON_NUMBERS = [
    *(NINES, f"-{NINES}", f"1{ZEROS}", f"1.{ZEROS}", f"0.{ZEROS}1", f"{NINES}.5"),
    *(f"1e{NINES}", f"1e-{NINES}", f"1{ZEROS}e-5000"),
]

ALICE = [(b"content-type", b"application/json"), (b"authorization", b"Bearer alice")]

SET = '{"alterations":[{"entity":{"user":"a"},"ops":[{"key":"producer_byte_rate","value":N}]}]}'
DOCUMENT = (
    '{"document":{"apiVersion":"quotas/v1",'
    '"quotas":[{"entity":{"user":"a"},"values":{"producer_byte_rate":N}}]}}'
)
BODIES = {
    "/quotas/alterations": [
        SET,
        SET.replace("producer_byte_rate", "request_percentage"),
        SET.replace("producer_byte_rate", "unknown"),
        SET.replace('"ops"', '"expected":{"producer_byte_rate":N},"ops"'),
        SET.replace('{"alterations"', '{"wait_ms":N,"alterations"'),
        '{"alterations":N}',
        "N",
    ],
    "/quotas/alterations/0/revert": ['{"wait_ms":N}'],
    "/quotas/resolve": [
        '{"identities":[{"user":"a"}],"max_age_ms":N}',
        '{"identities":[{"user":N}]}',
        SET.replace("{", '{"identities":[{"user":"a"}],', 1),
    ],
    "/quotas/plans": [DOCUMENT, DOCUMENT.replace("producer_byte_rate", "unknown")],
    "/quotas/plans/0/apply": ['{"wait_ms":N}'],
}
HEADERS = ("content-length", "idempotency-key", "supersede", "x-request-id", "if-none-match")


def parameters() -> Iterator[tuple[str, str, str]]:
    """Yield path, `in` and name of every number that a GET takes, and of all in its path."""
    for path, operations in document()["paths"].items():
        for reference in operations.get("get", {}).get("parameters", ()):
            parameter: Any = resolved(reference)
            if parameter["in"] == "path" or parameter["schema"].get("type") in {
                "integer",
                "number",
            }:
                yield path, parameter["in"], parameter["name"]


async def test_no_number_of_a_query_or_a_path_is_a_fault(service: FakeService):
    found = list(parameters())
    assert {name for _, location, name in found if location == "query"} >= {
        "page_size",
        "max_age_ms",
    }
    for path, location, name in found:
        for text in INTEGERS:
            address = path.replace(f"{{{name}}}", text).replace("{bucket_id}", "0")
            query = f"?user=a&{name}={text}" if path == "/quotas/resolve" else f"?{name}={text}"
            answer = await service.get(address + (query if location == "query" else ""))
            assert answer.status < 500, (path, name, text[:9])


@pytest.mark.parametrize("path", BODIES)
async def test_no_number_of_a_body_is_a_fault(service: FakeService, path: str):
    for body in BODIES[path]:
        for text in JSON_NUMBERS:
            content = [body.replace("N", text).encode()]
            answer = await send(service.app, "POST", path, headers=ALICE, body=content)
            assert answer.status < 500, (body, text[:9])


@pytest.mark.parametrize("header", HEADERS)
async def test_no_number_of_a_header_is_a_fault(service: FakeService, header: str):
    for text in INTEGERS:
        for method, path in (("GET", "/quotas"), ("POST", "/quotas/alterations")):
            headers = [*ALICE, (header.encode(), text.encode())]
            answer = await send(service.app, method, path, headers=headers, body=[b"{}"])
            assert answer.status < 500, (path, text[:9])
