"""``kafka-quota-service check``: whether the service could serve, a line for each subject."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from app.cluster_settings import ClusterSettings, read_clusters
from app.dependency_checks import (
    Finding,
    Grade,
    brokers_of,
    examine_callback,
    examine_cluster,
    examine_database,
    examine_rights,
)
from app.documents.callbacks import CallbackFileError
from app.domain.errors import CallbackFailedError
from app.policy_file import PolicyFileError, read_policy
from app.settings import Settings, SettingsError, UnreadSettingError
from app.startup_checks import find_faults, find_risky, find_unsafe

_SUBJECTS: Final[Mapping[str, str]] = {
    "QUOTAS_POLICY_FILE": "policy",
    "QUOTAS_CALLBACK_FILE": "callback",
    "QUOTAS_CLUSTERS_FILE": "clusters",
}
"""By the variable with which a fault of the settings begins; others are of the settings."""

_WORDS: Final[Mapping[Grade, str]] = {
    Grade.GOOD: "ok",
    Grade.RISKY: "warning",
    Grade.TOLERATED: "warning",
    Grade.UNSAFE: "warning",
}
_FAILS: Final = "FAILS"


async def examine(environ: Mapping[str, str]) -> tuple[list[str], bool]:
    """Look at everything that serving needs, and serve nothing.

    What cannot be read of the settings does not keep the rest from being looked at.

    Returns:
        A line for each finding, and whether the service could serve.
    """
    settings, faults = Settings.read(environ)
    findings = list(_of_settings(settings, [*faults, *find_faults(settings)]))
    with suppress(UnreadSettingError):
        findings += await examine_database(settings)
    with suppress(UnreadSettingError, SettingsError, ValueError):  # a fault already
        clusters = list(read_clusters(settings).clusters.values())
        ids: dict[str, str] = {}
        looked = await asyncio.gather(*(_examine_cluster(each, settings) for each in clusters))
        for cluster, (cluster_id, found) in zip(clusters, looked, strict=True):
            findings += (_named(each, cluster) for each in found)
            other = ids.setdefault(cluster_id or cluster.name, cluster.name)
            if other != cluster.name:
                twice = Finding(
                    "brokers", Grade.WRONG, f"{cluster_id} is served as {other} already"
                )
                findings.append(_named(twice, cluster))
    with suppress(UnreadSettingError):
        if settings.clusters_file is None:
            findings += _of_policy(settings.policy_file)
    return [_line(each, settings) for each in findings], not any(
        _fails(each, settings) for each in findings
    )


def _of_settings(settings: Settings, faults: Sequence[str]) -> Iterator[Finding]:
    for sentence in faults:
        variable = sentence.partition(":")[0]
        yield Finding(_SUBJECTS.get(variable, "settings"), Grade.WRONG, sentence)
    if not faults:
        yield Finding("settings", Grade.GOOD, f"for {settings.mode}")
    with suppress(UnreadSettingError):
        unsafe = [] if settings.is_production else find_unsafe(settings)
        for sentence in (*unsafe, *find_risky(settings)):
            yield Finding("settings", Grade.RISKY, sentence)


async def _examine_cluster(
    cluster: ClusterSettings, settings: Settings
) -> tuple[str | None, list[Finding]]:
    """Look at one cluster; return its id with what was found."""
    found: list[Finding] = []
    with suppress(OSError, ValueError):  # of TLS files: a fault already
        async with brokers_of(cluster, settings) as brokers:
            found += await examine_cluster(cluster, settings, brokers)
            if all(each.grade is Grade.GOOD for each in found):
                found += await examine_rights(cluster, settings, brokers)
                with suppress(CallbackFailedError, CallbackFileError):  # a fault already
                    found += await examine_callback(cluster, brokers)
            if cluster.is_of_file:
                found += _of_policy(cluster.policy_file)
            return brokers.cluster_id, found
    return None, found


def _named(finding: Finding, cluster: ClusterSettings) -> Finding:
    """Return a finding whose sentence begins with the cluster, where a file has several."""
    if not cluster.is_of_file:
        return finding
    return replace(finding, sentence=f"{cluster.name}: {finding.sentence}")


def _of_policy(path: Path | None) -> Iterator[Finding]:
    if path is None:
        yield Finding("policy", Grade.GOOD, "none is set")
        return
    with suppress(PolicyFileError):  # a fault of the settings already
        policy = read_policy(path)
        yield Finding("policy", Grade.GOOD, f"rules: {len(policy.rules)}, of {path}")


def _line(finding: Finding, settings: Settings) -> str:
    word = _FAILS if _fails(finding, settings) else _WORDS[finding.grade]
    return f"{word:<8} {finding.subject:<9} {finding.sentence}"


def _fails(finding: Finding, settings: Settings) -> bool:
    try:
        return finding.grade.fails(settings)
    except UnreadSettingError:  # the mode: the default is production
        return finding.grade not in (Grade.GOOD, Grade.RISKY, Grade.TOLERATED)
