"""The curl lines of `dev`, and the examples in them."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.localdev.examples import ALICE, AUDITOR, BOB, MALLORY, QUOTAS, Curl, all_lines

DOCUMENT = Path(__file__).parents[3] / "openapi" / "openapi.json"
ROUTES = [
    (method.upper(), path)
    for path, operations in json.loads(DOCUMENT.read_text("utf-8"))["paths"].items()
    for method in operations
]


@pytest.fixture
def curl() -> Curl:
    names = (ALICE, BOB, MALLORY, AUDITOR)
    return Curl("http://127.0.0.1:8080", {name: f"token-of-{name}" for name in names})


def curl_lines(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.startswith("curl ")]


def test_every_line_is_a_command_or_a_comment(curl: Curl):
    lines = all_lines(curl, "an-id", "a-plan").splitlines()
    assert all(line == "" or line.startswith(("#", "curl -sS ")) for line in lines)


def method_of(words: list[str]) -> str:
    if "-X" in words:
        return words[words.index("-X") + 1]
    return "POST" if "-d" in words else "GET"


def test_each_route_of_the_openapi_document_has_a_line(curl: Curl, subtests: pytest.Subtests):
    assert ROUTES
    for method, path in ROUTES:
        with subtests.test(method=method, path=path):
            pattern = re.compile(re.sub(r"\{[a-z_]+\}", "[^/]+", path))
            lines = curl_lines(all_lines(curl, "an-id", "a-plan"))
            methods = {
                method_of(words) for words in lines if pattern.fullmatch(urlsplit(words[-1]).path)
            }
            assert method in methods


def test_ids_that_there_are_not_yet_are_left_to_the_shell(curl: Curl):
    lines = all_lines(curl, None, None).splitlines()
    for path in ("quotas/alterations/$alteration", "quotas/plans/$plan", "analytics/runs/$run"):
        assert any(line.endswith(f' "http://127.0.0.1:8080/{path}"') for line in lines)


def test_each_format_has_a_line(curl: Curl):
    words = [word for line in curl_lines(all_lines(curl, None, None)) for word in line]
    for media_type in ("application/x-ndjson", "text/csv", "application/yaml"):
        assert f"Accept: {media_type}" in words


def shape(entity: dict[str, str | None]) -> tuple[tuple[str, bool], ...]:
    return tuple(sorted((kind, name is None) for kind, name in entity.items()))


def test_the_ten_quotas_cover_every_entity_shape():
    kinds = (None, False, True)  # absent, a name, the default
    pairs = {
        tuple(sorted((k, v) for k, v in (("user", u), ("client-id", c)) if v is not None))
        for u in kinds
        for c in kinds
    } - {()}
    expected = pairs | {(("ip", False),), (("ip", True),)}
    assert len(QUOTAS) == 10
    assert {shape(dict(entity)) for entity, _ in QUOTAS} == expected
