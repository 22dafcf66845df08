"""No secret of a running service is in what it answers, logs, stores or shows to `ps`."""

import base64
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import httpx
import psycopg
import pytest
from psycopg import sql

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.postgres.migrate import migrate
from tests.integration.http.service_calls import P, change
from tests.testkit.kafka import PLAIN_USERS
from tests.testkit.service import (
    DEADLINE_S,
    Launch,
    RunningService,
    forked,
    from_the_command_line,
    run_to_its_end,
    running_service,
    write_tokens,
)

KAFKA_PASSWORD = PLAIN_USERS["admin"]
DATABASE_PASSWORD = "canary-database-5f1c"
OWNER_PASSWORD = "canary-owner-77aa"
TOKENS = {name: f"canary-token-{name}-91d0" for name in ("alice", "bob", "mallory", "auditor")}
UNKNOWN_TOKEN = "canary-unknown-token-3b2e"
BASIC_PASSWORD = "canary-basic-c8d4"
WRONG_PASSWORD = "canary-wrong-kafka-0e6b"
COOKIE = "canary-cookie-22f9"
SIGNED = ".".join(
    base64.urlsafe_b64encode(section.encode()).rstrip(b"=").decode()
    for section in (
        '{"alg":"RS256","kid":"k1"}',
        '{"sub":"canary-subject","iss":"http://127.0.0.1:1","aud":"quotas","exp":9999999999}',
        "canary-signature-6a71-canary-signature",
    )
)

SECRETS = {
    KAFKA_PASSWORD,
    DATABASE_PASSWORD,
    OWNER_PASSWORD,
    UNKNOWN_TOKEN,
    BASIC_PASSWORD,
    WRONG_PASSWORD,
    COOKIE,
    SIGNED,
    SIGNED.rpartition(".")[2],
    *TOKENS.values(),
}


def spellings(secret: str) -> set[str]:
    """Return a secret as it may be written: plain, quoted, and within a Basic credential."""
    basic = {base64.b64encode(f"{user}:{secret}".encode()).decode() for user in ("alice", "admin")}
    return {secret, quote(secret, safe=""), secret.encode().hex(), *basic}


NEEDLES = sorted({needle for secret in SECRETS for needle in spellings(secret)})


@dataclass
class Seen:
    """All that came out, by where."""

    texts: dict[str, str] = field(default_factory=dict)

    def add(self, source: str, text: str) -> None:
        self.texts[source] = self.texts.get(source, "") + text

    def answer(self, answer: httpx.Response) -> httpx.Response:
        self.add("answers", f"{answer.headers.multi_items()}\n{answer.text}\n")
        return answer

    def found(self) -> list[tuple[str, str]]:
        return [
            (source, needle)
            for source, text in self.texts.items()
            for needle in NEEDLES
            if needle in text
        ]


def as_canary(url: str) -> str:
    """Return the URL for a role with the canary password."""
    scheme, _, rest = url.partition("://")
    _, _, address = rest.partition("@")
    return f"{scheme}://quotas_canary:{DATABASE_PASSWORD}@{address}"


def write_canary_tokens(folder: Path) -> Path:
    return write_tokens(folder, TOKENS, TOKENS.__getitem__, "canaries.json")


@contextmanager
def serving(
    folder: Path, kafka: str, database_url: str, launch: Launch = forked, **more: str
) -> Iterator[RunningService]:
    folder.mkdir()
    settings = {
        "tokens_file": str(write_canary_tokens(folder)),
        "log_level": "DEBUG",
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_username": "admin",
        "kafka_sasl_password": KAFKA_PASSWORD,
        "oidc_issuer": "http://127.0.0.1:1",
        "oidc_audience": "quotas",
        "basic_sasl_mechanism": "PLAIN",
        "basic_security_protocol": "SASL_PLAINTEXT",
        **more,
    }
    with running_service(folder, kafka, database_url, launch=launch, **settings) as running:
        yield running


def authorizations() -> list[list[tuple[str, str]]]:
    """Return the headers of each kind of caller, good and bad."""
    bearers = [*TOKENS.values(), UNKNOWN_TOKEN, SIGNED, f"{UNKNOWN_TOKEN} more"]
    basics = [("alice", BASIC_PASSWORD), ("admin", KAFKA_PASSWORD), ("admin", WRONG_PASSWORD)]
    encoded = [base64.b64encode(f"{user}:{word}".encode()).decode() for user, word in basics]
    values = [*(f"Bearer {bearer}" for bearer in bearers), *(f"Basic {item}" for item in encoded)]
    values += [f"Digest {UNKNOWN_TOKEN}", UNKNOWN_TOKEN, f"Basic {BASIC_PASSWORD}"]
    single = [[("Authorization", value)] for value in values]
    others = [
        [("Authorization", f"Bearer {TOKENS['alice']}"), ("Authorization", f"Basic {encoded[0]}")],
        [("Proxy-Authorization", f"Basic {encoded[0]}"), ("Cookie", f"session={COOKIE}")],
        [("X-Api-Key", UNKNOWN_TOKEN), ("X-Request-Id", f"{UNKNOWN_TOKEN} with a blank")],
    ]
    return [*single, *others]


REQUESTS = (
    ("GET", "/quotas", None),
    ("GET", "/quotas?filter=user!", None),
    ("GET", "/audit?actor=User:bob", None),
    ("GET", "/quotas/alterations/none", None),
    ("POST", "/quotas/alterations", {"alterations": [change({"user": "canary"}, {P: 5})]}),
    ("POST", "/quotas/alterations", {"alterations": [change({"user": "canary"}, {P: -5})]}),
    ("POST", "/quotas/alterations", {"alterations": 5, "more": True}),
    ("GET", "/nowhere", None),
)


def ask_everything(service: RunningService, seen: Seen) -> set[int]:
    """Send each request with each credential; return the statuses."""

    def ask(headers: list[tuple[str, str]]) -> list[httpx.Response]:
        return [
            client.request(verb, path, headers=headers, json=body) for verb, path, body in REQUESTS
        ]

    # Side by side: a broker answers a wrong password 0.1 s later.
    with (
        httpx.Client(base_url=service.url, timeout=DEADLINE_S) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        answers = list(chain.from_iterable(pool.map(ask, authorizations())))
        for path in ("/metrics", "/version", "/readyz?for=write", "/livez", "/openapi.json"):
            seen.answer(client.get(path))
    return {seen.answer(answer).status_code for answer in answers}


def everything_in(url: str) -> str:
    """Return every row of every table, as text."""
    query = "select tablename from pg_tables where schemaname = 'public'"
    with psycopg.connect(url) as connection:
        tables = [row[0] for row in connection.execute(query)]
        rows = [
            row[0]
            for table in tables
            for row in connection.execute(
                sql.SQL("select one::text from {} as one").format(sql.Identifier(table))
            )
        ]
    return "\n".join(rows)


def command_line(service: RunningService) -> str:
    assert service.process is not None
    return Path(f"/proc/{service.process.pid}/cmdline").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def urls(postgres: LocalPostgres) -> Iterator[tuple[str, str]]:
    """A database of the owner's, and of a role of this test."""
    owner, service = postgres.create_database("canaries")
    role = sql.SQL("create role quotas_canary login password {}").format(DATABASE_PASSWORD)
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        connection.execute(role)
        connection.execute("grant connect on database canaries to quotas_canary")
    migrate(owner, as_canary(service))
    yield owner, as_canary(service)
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        connection.execute("drop database canaries with (force)")
        connection.execute("drop role quotas_canary")


def test_a_service_that_works_tells_no_secret(
    broker: LocalKafka, urls: tuple[str, str], tmp_path: Path
) -> None:
    seen = Seen()
    folder, brokers = tmp_path / "works", broker.sasl_bootstrap_servers
    with serving(folder, brokers, urls[1], from_the_command_line) as service:
        statuses = ask_everything(service, seen)
        with httpx.Client(base_url=service.url, timeout=DEADLINE_S) as client:
            headers = {"Authorization": f"Bearer {TOKENS['auditor']}"}
            page = seen.answer(client.get("/audit", headers=headers))
            assert page.status_code == 200, page.text
            rows = page.json()["rows"]
        seen.add("ps", command_line(service))
        service.stop()
        seen.add("log", service.log_path.read_text(encoding="utf-8"))
    seen.add("tables", everything_in(urls[0]))
    assert {200, 400, 401, 403, 404, 422} <= statuses
    assert any(row["action"] == "denied" for row in rows)
    assert '"level": "debug"' in seen.texts["log"] or '"level":"debug"' in seen.texts["log"]
    assert "User:alice" in seen.texts["tables"]
    assert seen.found() == []


def test_a_service_that_is_refused_everywhere_tells_no_secret(
    broker: LocalKafka, tmp_path: Path
) -> None:
    seen = Seen()
    url = f"postgresql://quotas:{DATABASE_PASSWORD}@127.0.0.1:1/quotas"
    wrong = {"kafka_sasl_password": WRONG_PASSWORD}
    with serving(tmp_path / "refused", broker.sasl_bootstrap_servers, url, **wrong) as service:
        statuses = ask_everything(service, seen)
        service.stop()
        seen.add("log", service.log_path.read_text(encoding="utf-8"))
    assert {401, 503} <= statuses
    assert "audit log" in seen.texts["log"]
    assert seen.found() == []


BAD_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "a URL that cannot be read": {"DATABASE_URL": f"postgresql://u:{DATABASE_PASSWORD}@h:port/d"},
    "a URL of something else": {"DATABASE_URL": f"mysql://u:{DATABASE_PASSWORD}@h/d"},
    "a Postgres elsewhere": {"DATABASE_URL": f"postgresql://u:{DATABASE_PASSWORD}@192.0.2.1/d"},
    "a URL for the owner": {
        "MIGRATION_DATABASE_URL": f"mysql://u:{OWNER_PASSWORD}@h/d",
        "PORT": "none",
    },
    "a password without a mechanism": {
        "KAFKA_SASL_PASSWORD": KAFKA_PASSWORD,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    },
    "a password to a broker elsewhere": {
        "KAFKA_SASL_PASSWORD": KAFKA_PASSWORD,
        "KAFKA_SASL_USERNAME": "admin",
        "KAFKA_SASL_MECHANISM": "PLAIN",
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_BOOTSTRAP_SERVERS": "192.0.2.1:9092",
    },
    "a misspelt password": {"KAFKA_PASSWORD": KAFKA_PASSWORD, "DATABASE_PASS": DATABASE_PASSWORD},
    "a password in the wrong setting": {"MODE": KAFKA_PASSWORD, "LOG_LEVEL": DATABASE_PASSWORD},
}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("serve", name) for name in BAD_SETTINGS),
        ("migrate", "a URL that cannot be read"),
        ("migrate", "a URL for the owner"),
        ("migrate", "a misspelt password"),
    ],
)
def test_a_start_that_fails_tells_no_secret(tmp_path: Path, command: str, name: str) -> None:
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DATABASE_URL": f"postgresql://quotas:{DATABASE_PASSWORD}@127.0.0.1:1/quotas",
        "TOKENS_FILE": str(write_canary_tokens(tmp_path)),
        "PORT": "0",
        **BAD_SETTINGS[name],
    }
    environ = {f"QUOTAS_{key}": value for key, value in settings.items()}
    ended = run_to_its_end(command, environ, tmp_path)
    seen = Seen({"output": ended.stdout + ended.stderr})
    assert ended.returncode != 0
    assert ended.stderr
    assert seen.found() == []


def test_the_search_finds_what_is_there(subtests: pytest.Subtests) -> None:
    for secret in sorted(SECRETS):
        with subtests.test(secret=secret):
            basic = base64.b64encode(f"alice:{secret}".encode()).decode()
            for text in (secret, f"x{secret}x", f"Basic {basic}", quote(secret, safe="")):
                seen = Seen()
                seen.add("log", text)
                assert [source for source, _ in seen.found()][:1] == ["log"]
