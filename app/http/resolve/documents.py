"""Resolutions as JSON documents."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.domain.resolution_levels import ConfiguredQuota, LevelTried, Resolution, ResolvedQuota
from app.http.answers import entity_json, quota_value_json
from app.http.times import rfc3339
from app.service.queries.resolve import ResolveAnswer


def resolution_json(answer: ResolveAnswer, *, explain: bool) -> dict[str, Any]:
    """Return the answer for one identity."""
    resolution = answer.resolutions[0]
    return {
        **answer_head(answer.cluster_id, answer.as_of),
        **resolution_document(resolution, answer.callback_class, explain=explain),
    }


def resolutions_json(answer: ResolveAnswer) -> dict[str, Any]:
    """Return the answer for many identities, in order; ``proposed`` where there was a what-if."""
    results = [resolution_document(one, answer.callback_class) for one in answer.resolutions]
    if answer.proposed is not None:
        for result, proposed in zip(results, answer.proposed, strict=True):
            result["proposed"] = resolution_document(proposed, answer.callback_class)
    return {**answer_head(answer.cluster_id, answer.as_of), "results": results}


def answer_head(cluster_id: str, as_of: datetime) -> dict[str, Any]:
    """Return what an answer begins with."""
    return {"cluster_id": cluster_id, "as_of": rfc3339(as_of)}


def resolution_document(
    resolution: Resolution, callback_class: str | None, *, explain: bool = False
) -> dict[str, Any]:
    """Return one resolution, of which ``resolution_writing`` makes templates."""
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
