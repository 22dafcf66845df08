"""Sending what alters: the same request with the same key until there is an answer that counts."""

import time
from collections.abc import Callable
from typing import Final

from app.client.entities import visible
from app.client.http_library import httpx

_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
"""After each try; none follows the last."""
_LONGEST_PAUSE_S: Final = 30.0

_BUSY: Final = (409, 429)
"""Nothing was done, and it may work in a moment: tried again after ``Retry-After``."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class LostAnswerError(Exception):
    """It was sent, and no answer came that tells what became of it."""


class Sending:
    """One alteration and its tries.

    Args:
        post: Sends it once.
    """

    def __init__(self, post: Callable[[], httpx.Response]) -> None:
        self._post = post
        self._lost: str | None = None

    def answer(self) -> httpx.Response:
        """Return the answer that counts.

        Raises:
            httpx.HTTPError: Nothing was ever sent.
            LostAnswerError: It may have been done.
        """
        answer: httpx.Response | None = None
        for pause_s in _PAUSES_S:
            answer = self._try()
            if answer is not None and not _is_busy(answer):
                return answer
            if pause_s:
                time.sleep(pause_s if answer is None else _retry_after_s(answer))
        if answer is not None and self._lost is None:
            return answer
        raise LostAnswerError(self._lost)

    def _try(self) -> httpx.Response | None:
        """Return an answer, or null where it says nothing of an earlier try that was lost."""
        try:
            answer = self._post()
        except httpx.HTTPError as error:
            if self._lost is None and isinstance(error, _NEVER_SENT):
                raise
            self._lost = visible(str(error)) or type(error).__name__
            return None
        if self._lost is not None and answer.is_server_error and "location" not in answer.headers:
            return None
        return answer


def _is_busy(answer: httpx.Response) -> bool:
    return answer.status_code in _BUSY and "retry-after" in answer.headers


def _retry_after_s(answer: httpx.Response) -> float:
    text = answer.headers["retry-after"]
    return min(float(text), _LONGEST_PAUSE_S) if text.isdigit() else 1.0
