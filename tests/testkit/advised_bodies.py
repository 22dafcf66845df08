"""Bodies of advice, read and judged as the service does it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.validation import judge
from app.http.alterations.models import AlterationRequest
from app.http.validation import parse_json, validated
from app.service.ports.alterations import Change


def read_body(body: Mapping[str, Any]) -> Sequence[Change]:
    """Return the changes that a body asks for; it breaks no rule."""
    request = validated(AlterationRequest, parse_json(json.dumps(body).encode()))
    assert list(request.broken_rules()) == []
    assert judge(request.changes, {}).violations == ()
    return request.changes
