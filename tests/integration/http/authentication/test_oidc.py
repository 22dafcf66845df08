"""People who log in at an identity provider, and call with the token that it gave them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.service import DEADLINE_S, PLAIN_HTTP, RunningService, running_service

AUDIENCE = "kafka-quotas"
BACK = "http://127.0.0.1:1/back"


PROVIDER = """
import sys, oidc_provider_mock
with oidc_provider_mock.run_server_in_thread() as server:
    print(server.server_port, flush=True)
    sys.stdin.read()
"""


def log_in(issuer: str, name: str) -> str:
    """Go through the authorization code flow as that user; return the identity token."""
    query = {
        "client_id": AUDIENCE,
        "redirect_uri": BACK,
        "response_type": "code",
        "scope": "openid",
    }
    with httpx.Client(base_url=issuer, timeout=DEADLINE_S, verify=PLAIN_HTTP) as browser:
        form = {"sub": name, "action": "authorize"}
        answer = browser.post("/oauth2/authorize", params=query, data=form)
        (code,) = parse_qs(urlsplit(answer.headers["Location"]).query)["code"]
        grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
        tokens = browser.post("/oauth2/token", data=grant, auth=(AUDIENCE, "a secret"))
    return str(tokens.json()["id_token"])


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """Run an identity provider."""
    command = [sys.executable, "-W", "ignore", "-c", PROVIDER]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def trusting(
    service: RunningService,
    broker: LocalKafka,
    issuer: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    """A second service on the same cluster and log, which believes the identity provider."""
    folder = tmp_path_factory.mktemp("trusting")
    database_url = service.environ["QUOTAS_DATABASE_URL"]
    oidc = {"oidc_issuer": issuer, "oidc_audience": AUDIENCE}
    with running_service(folder, broker.bootstrap_servers, database_url, **oidc) as running:
        yield running


def call(service: RunningService, token: str, path: str = "/quotas") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{service.url}{path}"
    return httpx.get(url, headers=headers, timeout=DEADLINE_S, verify=PLAIN_HTTP)


def test_a_token_of_the_provider_is_judged_by_kafkas_acls(trusting: RunningService, issuer: str):
    assert call(trusting, log_in(issuer, "bob")).status_code == 200
    problem = problem_of(call(trusting, log_in(issuer, "mallory")), 403)
    assert problem["code"] == "cluster-authorization-failed"


def test_the_audit_log_says_who_it_was_and_how_they_proved_it(
    trusting: RunningService, issuer: str
):
    name, token = unique(), log_in(issuer, "alice")
    op = {"key": "producer_byte_rate", "value": 1024}
    answer = httpx.post(
        f"{trusting.url}/quotas/alterations",
        json={"alterations": [{"entity": {"user": name}, "ops": [op]}]},
        headers={"Authorization": f"Bearer {token}"},
        timeout=DEADLINE_S,
    )
    assert answer.status_code == 200, answer.text
    (row,) = call(trusting, token, f"/audit?entity=user={name}").json()["rows"]
    assert (row["principal"], row["authentication"]) == ("User:alice", "oidc")


def test_tokens_of_the_file_are_good_beside_it(trusting: RunningService):
    assert trusting.api("bob").get("/quotas").status_code == 200


def test_no_token_is_in_the_log_and_the_questions_are_counted(
    trusting: RunningService, issuer: str
):
    token = log_in(issuer, "bob")
    assert call(trusting, token).status_code == 200
    assert token not in trusting.log_path.read_text()
    metrics = httpx.get(f"{trusting.url}/metrics", timeout=DEADLINE_S).text
    assert re.search(r'^authn_jwks_fetch_total\{result="ok"\} [1-9]', metrics, re.MULTILINE)
    assert re.search(
        r'^authn_total\{method="oidc",reason="",result="accepted"\}', metrics, re.MULTILINE
    )
