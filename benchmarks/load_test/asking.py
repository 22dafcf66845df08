"""One caller of the service, who notes how each request ended."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from benchmarks.stack import Stack

_PATIENCE_S = 300.0
_MILLION = 1e6


@dataclass(frozen=True)
class Asked:
    """How a request ended.

    Attributes:
        status: Of the answer; 0 where none came or its body was cut.
        code: Of the problem, or why there was no answer; empty after a success.
        first_ms: Until the first byte of the body, in milliseconds.
        ms: Until the last.
        megabytes: Of the body.
        retry_after_s: When the service wants to be asked again; 0 where it does not say.
    """

    status: int
    code: str
    first_ms: float
    ms: float
    megabytes: float
    retry_after_s: float = 0.0

    @property
    def worked(self) -> bool:
        """Whether it was answered as asked."""
        return self.status == httpx.codes.OK


class Asking:
    """A keep-alive connection to the service."""

    def __init__(self, stack: Stack) -> None:
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{stack.service_port}",
            headers={"Authorization": f"Bearer {stack.token}"},
            timeout=_PATIENCE_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(self, path: str, **parameters: str | int) -> Asked:
        """Ask, read the whole answer, and keep none of it."""
        return self._asked("GET", path, params=parameters)

    def alter(self, body: Mapping[str, Any]) -> Asked:
        """Send one alteration."""
        return self._asked("POST", "/quotas/alterations", json=body)

    def _asked(self, method: str, path: str, **arguments: Any) -> Asked:
        begun = time.perf_counter()
        first = end = begun
        size, status, code, retry_after_s = 0, 0, "", 0.0
        try:
            with self._http.stream(method, path, **arguments) as answer:
                problem: list[bytes] = []
                for chunk in answer.iter_bytes():
                    first = time.perf_counter() if not size else first
                    size += len(chunk)
                    if answer.status_code != httpx.codes.OK:
                        problem.append(chunk)
                status = answer.status_code
                retry_after_s = float(answer.headers.get("Retry-After", 0))
                if status != httpx.codes.OK:
                    code = str(json.loads(b"".join(problem))["code"])
        except httpx.HTTPError as error:
            status, code = 0, type(error).__name__
        end = time.perf_counter()
        return Asked(
            status, code, (first - begun) * 1000, (end - begun) * 1000, size / _MILLION,
            retry_after_s,
        )  # fmt: skip
