import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.localdev.tokens import tokens_file, write_tokens

NAMES = ("User:alice", "User:bob")


def test_the_service_gets_the_hash_of_each_token_and_a_year(tmp_path: Path):
    tokens = write_tokens(tmp_path, NAMES)
    accepted = json.loads(tokens_file(tmp_path).read_text())
    for entry in accepted:
        token = tokens[entry["principal"]]
        assert entry["token_sha256"] == hashlib.sha256(token.encode()).hexdigest()
        left = datetime.fromisoformat(entry["expires_at"]) - datetime.now(UTC)
        assert left > timedelta(days=360)
    assert {entry["principal"] for entry in accepted} == set(NAMES)


def test_tokens_survive_a_restart_and_differ_from_each_other(tmp_path: Path):
    first = write_tokens(tmp_path, NAMES)
    assert write_tokens(tmp_path, NAMES) == first
    assert len(set(first.values())) == 2


def test_each_has_a_file_that_only_its_owner_can_read(tmp_path: Path):
    tokens = write_tokens(tmp_path, NAMES)
    folder = tmp_path / "tokens"
    assert (folder / "alice").read_text() == tokens["User:alice"]
    for path in (folder, *folder.iterdir(), tokens_file(tmp_path)):
        assert path.stat().st_mode & 0o077 == 0
