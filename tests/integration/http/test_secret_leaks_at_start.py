"""No secret is in what a start says that fails; and the search finds what is there."""

import base64
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.integration.http.secret_leaks import (
    DATABASE_PASSWORD,
    KAFKA_PASSWORD,
    OWNER_PASSWORD,
    SECRETS,
    Seen,
    write_canary_tokens,
)
from tests.testkit.service import run_to_its_end

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
    "a password in the wrong place": {"MODE": KAFKA_PASSWORD, "LOG_LEVEL": DATABASE_PASSWORD},
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


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_the_search_finds_what_is_there(secret: str) -> None:
    basic = base64.b64encode(f"alice:{secret}".encode()).decode()
    for text in (secret, f"x{secret}x", f"Basic {basic}", quote(secret, safe="")):
        seen = Seen()
        seen.add("log", text)
        assert [place for place, _ in seen.found()][:1] == ["log"]
