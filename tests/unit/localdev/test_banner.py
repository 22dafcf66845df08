import json
import shlex

import pytest

from app.localdev.banner import Curl, banner
from app.localdev.examples import ALICE, AUDITOR, BOB, MALLORY


@pytest.fixture
def curl() -> Curl:
    names = (ALICE, BOB, MALLORY, AUDITOR)
    return Curl("http://127.0.0.1:8080", {name: f"token-of-{name}" for name in names})


def curl_lines(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.startswith("curl ")]


def test_every_line_is_a_command_or_a_comment(curl: Curl):
    lines = banner(curl, "an-id").splitlines()
    assert all(line == "" or line.startswith(("#", "curl -sS ")) for line in lines)


@pytest.mark.parametrize(
    "path",
    [
        "/quotas",
        "/quotas/alterations",
        "/quotas/alterations/an-id",
        "/quotas/resolve",
        "/quotas/plans",
        "/users/scram-credentials",
        "/quotas/resolve?ip=192.0.2.10",
        "/audit?page_size=10",
        "/quotas/capabilities",
        "/livez",
        "/readyz",
        "/readyz?for=write",
        "/metrics",
        "/version",
        "/docs",
        "/openapi.json",
    ],
)
def test_each_route_has_a_line(curl: Curl, path: str):
    urls = {words[-1] for words in curl_lines(banner(curl, "an-id"))}
    assert "http://127.0.0.1:8080" + path in urls


def test_each_format_has_a_line(curl: Curl):
    words = [word for line in curl_lines(banner(curl, None)) for word in line]
    for media_type in ("application/x-ndjson", "text/csv", "application/yaml"):
        assert f"Accept: {media_type}" in words


def test_a_line_carries_the_token_of_its_principal_and_its_body_as_json(curl: Curl):
    words = shlex.split(curl.line("/x", ALICE, body={"text": 'it\'s a "quote"'}))
    assert json.loads(words[words.index("-d") + 1]) == {"text": 'it\'s a "quote"'}
    assert "Authorization: Bearer token-of-User:alice" in words


def test_without_an_alteration_there_is_no_line_for_one(curl: Curl):
    assert "/quotas/alterations/" not in banner(curl, None)
