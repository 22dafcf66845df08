"""Whether the brokers decide as the jobs do."""

from typing import Final
from urllib.parse import urlsplit

import httpx

from app.pipeline.jobs.doctor_checks import Check, fail, ok

_CHECK: Final = "quota callback"
_TIMEOUT_S: Final = 10.0


def callback_check(server: str, token: str | None) -> Check:
    """Ask the service whether a broker has a ``client.quota.callback.class`` of its own.

    Such a broker applies limits of its own making, which no stored quota tells.

    Source: KIP-257.
    """
    if urlsplit(server).scheme not in {"http", "https"}:
        return fail(_CHECK, f"--server {server} is no http:// or https:// address.")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.get(
            f"{server.rstrip('/')}/quotas/resolve",
            params={"user": "ANONYMOUS"},
            headers=headers,
            timeout=_TIMEOUT_S,
        )
        told = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        return fail(_CHECK, f"{server} does not answer ({error}): see that the service runs.")
    if answer.status_code != httpx.codes.OK:
        code = told.get("code") if isinstance(told, dict) else None
        line = f"{server} answers {answer.status_code} {code or ''}".rstrip()
        return fail(_CHECK, f"{line}: give --token-file of a principal that may describe.")
    return _judged(told)


def _judged(told: object) -> Check:
    if isinstance(told, dict) and told.get("authoritative") is True:
        return ok(_CHECK, "no broker has a callback of its own: results are authoritative.")
    line = (
        "a broker has client.quota.callback.class set: limits and buckets of these results are "
        "what is configured, not what is enforced. Do not act on them without asking its owner."
    )
    return fail(_CHECK, line)
