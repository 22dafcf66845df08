"""The live quotas of a service, over its HTTP interface."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx

from app.pipeline.errors import InfrastructureError, PipelineError, UsageError

_TIMEOUT_S: Final = 60.0

Quota = Mapping[str, Any]
"""One quota object of ``GET /quotas``: ``entity`` and ``values``."""


@dataclass(frozen=True)
class LiveQuotas:
    """One describe of everything.

    Attributes:
        cluster_id: Of the cluster that answered.
        as_of: When its answer held, UTC.
        quotas: In the order of the answer.
    """

    cluster_id: str
    as_of: datetime
    quotas: list[Quota]


def describe_live(server: str, token_file: Path) -> LiveQuotas:
    """Ask a service for all quotas, in one answer so that all are of one time.

    Args:
        server: The address, such as ``http://localhost:8080``.
        token_file: Holds the bearer token.

    Raises:
        UsageError: The token cannot be read or is not good enough, or the address is none.
        InfrastructureError: The service cannot be reached or has no answer.
    """
    headers = {"Authorization": f"Bearer {_token(token_file)}"}
    try:
        with httpx.Client(base_url=server, headers=headers, timeout=_TIMEOUT_S) as client:
            answer = client.get("/quotas")
        if answer.status_code != httpx.codes.OK:
            raise _refusal(answer, server)
        document = answer.json()
        as_of = datetime.fromisoformat(document["as_of"])
        return LiveQuotas(document["cluster_id"], as_of, list(document["quotas"]))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        message = f"--server {server} is no address: write it as in http://localhost:8080."
        raise UsageError(message) from error
    except httpx.HTTPError as error:
        message = f"{server} cannot be reached ({error}): is it the address of the service?"
        raise InfrastructureError(message) from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"{server} answers something else than quotas: is it the address of the service?"
        raise InfrastructureError(message) from error


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        message = f"--token-file {file} cannot be read: {error}."
        raise UsageError(message) from error
    if not token or not token.isascii() or not token.isprintable():
        message = f"--token-file {file} holds no token: it is one line of text."
        raise UsageError(message)
    return token


def _refusal(answer: httpx.Response, server: str) -> PipelineError:
    detail = _detail(answer)
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return UsageError(f"{server} does not accept the token of --token-file: {detail}")
    if answer.status_code == httpx.codes.FORBIDDEN:
        return UsageError(
            f"The principal of --token-file may not describe quotas on {server}: {detail}"
        )
    return InfrastructureError(f"{server} answers with status {answer.status_code}: {detail}")


def _detail(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
    except ValueError:
        return answer.reason_phrase
    title = problem.get("detail") or problem.get("title") if isinstance(problem, dict) else None
    return str(title or answer.reason_phrase)
