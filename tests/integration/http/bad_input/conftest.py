"""Every test here also proves that nothing it sends reaches the broker."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.testkit.raw_quotas import RequestLog
from tests.testkit.service import RunningService

Post = Callable[..., httpx.Response]


@pytest.fixture(autouse=True)
def _nothing_is_sent(broker_log: RequestLog) -> Iterator[None]:
    with broker_log.nothing_arrives():
        yield


@pytest.fixture
def post(service: RunningService) -> Post:
    """Post a body as alice, who may alter: text and bytes as they are, anything else as JSON."""

    def send(body: Any, path: str = "/quotas/alterations", **headers: str) -> httpx.Response:
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named = {"Content-Type": "application/json", **named}
        return service.api().post(path, content=content, headers=named)

    return send
