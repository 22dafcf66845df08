"""One connection to the service with a credential, and alterations that are safe to repeat."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from app.client.configuration import Configuration, authorization, tls
from app.client.errors import (
    ClientError,
    StoppedError,
    UnknownOutcomeError,
    UnreachableError,
    UsageError,
)
from app.client.problems import ServiceError
from app.client.receiving import json_of, send
from app.domain.entities import visible

_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
"""After each try; none follows the last."""
_LONGEST_PAUSE_S: Final = 30.0

_BUSY: Final = (409, 429)
"""Nothing was done, and it may work soon: tried again after ``Retry-After``."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class LostAnswerError(Exception):
    """It was sent, and no answer came that tells what became of it."""


def _send(post: Callable[[], httpx.Response]) -> httpx.Response:
    """Try one alteration until there is an answer that counts.

    Raises:
        httpx.HTTPError: Nothing was ever sent.
        LostAnswerError: It may have been done.
    """
    lost: str | None = None
    for pause_s in _PAUSES_S:
        answer: httpx.Response | None = None
        try:
            answer = post()
        except httpx.HTTPError as error:
            if lost is None and isinstance(error, _NEVER_SENT):
                raise
            lost = visible(str(error)) or type(error).__name__
        if answer is not None and lost is not None and answer.is_server_error:
            # Without a location it says nothing of the earlier try that was lost.
            answer = answer if "location" in answer.headers else None
        if answer is not None and not _is_busy(answer):
            return answer
        if pause_s:
            time.sleep(pause_s if answer is None else _retry_after_s(answer))
    if answer is not None and lost is None:
        return answer
    raise LostAnswerError(lost)


def _is_busy(answer: httpx.Response) -> bool:
    return answer.status_code in _BUSY and "retry-after" in answer.headers


def _retry_after_s(answer: httpx.Response) -> float:
    text = answer.headers["retry-after"]
    is_number = text.isascii() and text.isdecimal()
    return min(float(text), _LONGEST_PAUSE_S) if is_number else 1.0


_CONNECT_S: Final = 10.0
_LONGEST_FAULT: Final = 200

_HOW_TO_ASK_AGAIN: Final = (
    "The outcome is unknown: it may have been done. To learn it, and without doing it twice:\n"
    "  {again} --idempotency-key {key}"
)

_OF_NO_ROUTE: Final = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
"""The service itself says so in a problem document."""

_IDENTITIES_AT_ONCE: Final = 10_000
"""So many does the service take in one request."""

Parameters = Sequence[tuple[str, str]]

JSON: Final = "application/json"


@dataclass
class Connection:
    """Calls one service. Reads are asked once; what alters carries a key and may be repeated.

    A refusal of the service is a ``ServiceError``; no answer, or one of something else, is an
    ``UnreachableError``.
    """

    configured: Configuration
    timeout_s: float
    unanswered: str | None = None
    """How to learn the outcome, once something was sent that alters."""
    _client: httpx.Client | None = None

    def get(self, path: str, parameters: Parameters = (), accept: str = JSON) -> httpx.Response:
        """Return the answer to a read."""
        try:
            client = self._open()
            headers = {"Accept": accept}
            address = self._below(path)
            request = client.build_request("GET", address, params=list(parameters), headers=headers)
            answer = send(client, request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return self._good(answer)

    def ask(self, path: str, body: Any, *needed: str) -> Any:
        """Return the JSON answer, with the members that are needed, to what changes nothing."""
        return document(self._once("POST", path, body), *needed)

    def put(self, path: str, body: Any) -> httpx.Response:
        """Return the answer to what may be repeated as it is."""
        return self._once("PUT", path, body)

    def _once(self, method: str, path: str, body: Any) -> httpx.Response:
        try:
            client = self._open()
            answer = send(client, client.build_request(method, self._below(path), json=body))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return self._good(answer)

    def resolve(self, identities: Sequence[Any], **members: Any) -> Iterator[Mapping[str, Any]]:
        """Yield what applies to each identity, in order; any number of them.

        Args:
            identities: Each as in the request.
            members: Others of the request. Behind the first one ``max_age_ms`` is the service's
                default: the image that the first one has read will do.
        """
        for start in range(0, len(identities), _IDENTITIES_AT_ONCE):
            body = {"identities": identities[start : start + _IDENTITIES_AT_ONCE], **members}
            members.pop("max_age_ms", None)
            yield from self.ask("/quotas/resolve", body, "results")["results"]

    def alter(self, path: str, body: Any, key: str | None, again: str) -> httpx.Response:
        """Return the answer to what alters; a lost answer is asked for again with the same key.

        Args:
            path: Of the route.
            body: As JSON.
            key: Of an earlier try; null makes a new one.
            again: The command to repeat, where no answer comes.

        Raises:
            UnreachableError: The service was never reached, so nothing was sent.
            UnknownOutcomeError: It was reached, and no answer came back however often it was asked.
            ServiceError: The service refuses, or does not know the outcome itself.
        """
        key = key or str(uuid.uuid4())
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        content = json.dumps(body).encode()
        client = self._open()
        self.unanswered = _HOW_TO_ASK_AGAIN.format(again=again, key=key)

        def post() -> httpx.Response:
            return send(
                client,
                client.build_request("POST", self._below(path), content=content, headers=headers),
            )

        try:
            return self._good(_send(post))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except KeyboardInterrupt as interrupt:
            raise StoppedError(f"Stopped. {self.unanswered}") from interrupt
        except LostAnswerError as lost:
            message = (
                f"{visible(self.configured.server)} gave no answer ({lost}). {self.unanswered}"
            )
            raise UnknownOutcomeError(message) from lost

    def of_cluster(self, name: str | None) -> "Connection":
        """Return the same connection, for a cluster of the service; null: the service itself."""
        self._open()
        return replace(self, configured=replace(self.configured, cluster=name))

    def _below(self, path: str) -> str:
        cluster = self.configured.cluster
        return path if cluster is None else f"/clusters/{cluster}{path}"

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def absolute(self, location: str) -> str:
        """Return an address of this service with its host."""
        return self.configured.server.rstrip("/") + location if location[:1] == "/" else location

    def _open(self) -> httpx.Client:
        if self._client is None:
            credential = authorization(self.configured)
            headers = {b"Accept-Encoding": b"gzip"}
            if credential is not None:
                headers[b"Authorization"] = credential
            try:
                self._client = httpx.Client(
                    base_url=self.configured.server,
                    headers=headers,
                    verify=tls(self.configured),
                    timeout=httpx.Timeout(self.timeout_s, connect=_CONNECT_S),
                )
            except (httpx.InvalidURL, ValueError) as error:
                raise self._no_address() from error
            if self._client.base_url.scheme not in ("http", "https"):
                raise self._no_address()
            if self._client.base_url.userinfo:
                raise UsageError("--server holds no user and password: give --user.")
        return self._client

    def _no_address(self) -> UsageError:
        return UsageError("--server is no address: write it as in http://localhost:8080.")

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        server = visible(self.configured.server)
        cause = visible(str(error)) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in cause:
            return UnreachableError(
                f"{server} shows a certificate that is not trusted here; nothing was sent. If its "
                f"authority is your own, name it with --cacert ({cause})."
            )
        return UnreachableError(
            f"{server} cannot be reached ({cause}). Nothing was changed. Is it the address of the "
            "service, and is it running?"
        )

    def _good(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        problem = json_of(answer)
        if not isinstance(problem, Mapping):
            if answer.status_code in _OF_NO_ROUTE or not answer.is_error:
                raise _not_the_service(self.configured.server)
            problem = {"title": f"{self.configured.server} answers {answer.reason_phrase}"}
        location = answer.headers.get("location")
        raise ServiceError(
            answer.status_code, problem, None if location is None else self.absolute(location)
        )


def odd_answer(service: Connection, error: Exception) -> ClientError:
    """Return the error for an answer whose members are the service's, but whose content is not."""
    server = visible(service.configured.server)
    fault = visible(f"{type(error).__name__}: {error}"[:_LONGEST_FAULT])
    message = f"{server} answers something else than this command reads ({fault})."
    if service.unanswered is not None:
        return UnknownOutcomeError(f"{message} {service.unanswered}")
    return UnreachableError(f"{message} Is it the quota service, of this version or a later one?")


def document(answer: httpx.Response, *needed: str) -> Any:
    """Return the JSON object of an answer."""
    content = json_of(answer)
    if isinstance(content, dict) and set(needed) <= content.keys():
        return content
    raise _not_the_service(str(answer.url))


def _not_the_service(address: str) -> UnreachableError:
    return UnreachableError(
        f"{visible(address)} is answered by something else than the quota service: is --server "
        "its address?"
    )
