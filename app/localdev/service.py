"""The service as a child process, and the tokens that it takes."""

import hashlib
import http.client
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.localdev.local_directory import LocalDevError, write_private
from app.localdev.processes import ManagedProcess, listening_error, run_to_end

_REQUEST_TIMEOUT_S = 20.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
_MAIN = [sys.executable, "-m", "app.main"]

OK = 200


class LocalService(ManagedProcess):
    """The service of this checkout, one process, listening on a host and port."""

    def __init__(self, host: str, port: int, log_path: Path) -> None:
        super().__init__("The service", log_path)
        self.host = _ANY_ADDRESS.get(host, host)
        self.port = port

    @property
    def url(self) -> str:
        """The address for a client on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the service and return when it is ready for each of its clusters."""
        operations_port = int(environ.get("QUOTAS_OPERATIONS_PORT") or self.port)

        def is_ready() -> bool:
            try:
                status, answer = self._ask(operations_port, "GET", "/readyz")
            except (OSError, http.client.HTTPException, ValueError):
                return False  # not listening yet
            # It is ready as soon as one cluster is.
            of_clusters = answer.get("clusters", {}).values()
            return status == OK and all(each["status"] == "ok" for each in of_clusters)

        def launch() -> Callable[[], bool]:
            self.spawn([*_MAIN, "serve"], directory=Path.cwd(), environ=environ)
            return is_ready

        self.bring_up(launch)

    def request(
        self, method: str, path: str, *, token: str | None = None, body: object = None
    ) -> tuple[int, Any]:
        """Send one request; return the status and the JSON of the answer."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        payload = None if body is None else json.dumps(body)
        return self._ask(self.port, method, path, payload, headers)

    def _ask(self, port: int, *request: Any) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, port, timeout=_REQUEST_TIMEOUT_S)
        with closing(connection):
            connection.request(*request)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


def migrate(environ: Mapping[str, str]) -> None:
    """Bring the tables up to date."""
    done = run_to_end([*_MAIN, "migrate"], environ)
    if done.returncode != 0:
        raise LocalDevError(f"The database was not migrated:\n{done.stdout.strip()}")


def refuse_a_taken_port(host: str, port: int) -> None:
    """Raise where the service could not listen."""
    error = listening_error(host, port)
    if error is not None:
        raise LocalDevError(
            f"Port {port} of {host} cannot be used ({error}): stop what listens there, or choose "
            "another port as in `QUOTAS_PORT=8081 make run`."
        )


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
