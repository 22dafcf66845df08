"""The bearer tokens of the example principals: made once, kept in private files."""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.localdev.state import write_private

_VALID_FOR = timedelta(days=365)


def write_tokens(directory: Path, principals: Sequence[str]) -> Mapping[str, str]:
    """Write `tokens.json` for the service, and for each principal a file with its token.

    `User:alice` has the file `tokens/alice`. Tokens survive a restart; each start makes them
    valid for another year.

    Returns:
        The token of each principal.
    """
    folder = directory / "tokens"
    folder.mkdir(mode=0o700, exist_ok=True)
    tokens = {name: _token(folder / name.removeprefix("User:")) for name in principals}
    expires_at = (datetime.now(UTC) + _VALID_FOR).isoformat(timespec="milliseconds")
    accepted = [
        {
            "principal": principal,
            "token_sha256": hashlib.sha256(token.encode()).hexdigest(),
            "expires_at": expires_at.replace("+00:00", "Z"),
        }
        for principal, token in tokens.items()
    ]
    write_private(tokens_file(directory), json.dumps(accepted, indent=2) + "\n")
    return tokens


def tokens_file(directory: Path) -> Path:
    """Return what `QUOTAS_TOKENS_FILE` names."""
    return directory / "tokens.json"


def _token(file: Path) -> str:
    if not file.exists():
        write_private(file, secrets.token_urlsafe(32))
    return file.read_text(encoding="utf-8")
