"""Resolutions as JSON documents."""

from collections.abc import Mapping
from typing import Any

from app.domain.resolution import Resolution
from app.domain.resolution_values import ConfiguredQuota, LevelTried, ResolvedQuota
from app.http.answers import entity_json, quota_value_json
from app.http.times import rfc3339
from app.service.reading.resolve import ResolveAnswer


def resolution_json(answer: ResolveAnswer, *, explain: bool) -> dict[str, Any]:
    """Return the answer for one identity."""
    return {
        "cluster_id": answer.cluster_id,
        "as_of": rfc3339(answer.as_of),
        **_resolution(answer.resolutions[0], answer.callback_class, explain=explain),
    }


def resolutions_json(answer: ResolveAnswer) -> dict[str, Any]:
    """Return the answer for many identities, in order; ``proposed`` where there was a what-if."""
    results = [_resolution(one, answer.callback_class, explain=False) for one in answer.resolutions]
    if answer.proposed is not None:
        for result, proposed in zip(results, answer.proposed, strict=True):
            result["proposed"] = _resolution(proposed, answer.callback_class, explain=False)
    return {
        "cluster_id": answer.cluster_id,
        "as_of": rfc3339(answer.as_of),
        "results": results,
    }


def _resolution(
    resolution: Resolution, callback_class: str | None, *, explain: bool
) -> dict[str, Any]:
    notes = list(resolution.notes)
    if callback_class is not None:
        notes.append(
            f"A broker has client.quota.callback.class={callback_class}: this is what is "
            "configured, not necessarily what is enforced."
        )
    return {
        "identity": dict(resolution.identity),
        "authoritative": callback_class is None,
        "quotas": {
            key.value: _quota_json(quota, explain=explain)
            for key, quota in resolution.quotas.items()
        },
        "notes": notes,
    }


def _quota_json(quota: ResolvedQuota, *, explain: bool) -> dict[str, Any]:
    source = quota.source
    document: dict[str, Any] = {
        "value": None if quota.value is None else quota_value_json(quota.value),
        "unit": quota.unit,
        "scope": quota.scope.value,
        "source": None if source is None else _place(source),
        "shared_by": dict(quota.shared_by),
        "overridden": [
            {**_place(one), "value": quota_value_json(one.value)} for one in quota.overridden
        ],
    }
    if explain:
        document["levels"] = [_level_json(level) for level in quota.levels]
    return document


def _place(quota: ConfiguredQuota | LevelTried) -> Mapping[str, Any]:
    return {"entity": entity_json(quota.entity), "level": quota.level, "name": quota.name}


def _level_json(level: LevelTried) -> dict[str, Any]:
    return {
        **_place(level),
        "value": None if level.value is None else quota_value_json(level.value),
        "applies": level.applies,
        "reason": level.reason,
    }
