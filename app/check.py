"""``kafka-quota-service check``: whether the service could serve, a line for each subject."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

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
from app.settings import Settings, UnreadSettingError
from app.startup_checks import find_faults, find_risky, find_unsafe

_SUBJECTS: Final[Mapping[str, str]] = {
    "QUOTAS_POLICY_FILE": "policy",
    "QUOTAS_CALLBACK_FILE": "callback",
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
    with suppress(UnreadSettingError, OSError, ValueError):  # of TLS files: a fault already
        async with brokers_of(settings) as brokers:
            found = await examine_cluster(settings, brokers)
            if all(each.grade is Grade.GOOD for each in found):
                found += await examine_rights(settings, brokers)
                with suppress(CallbackFailedError, CallbackFileError):  # a fault already
                    found += await examine_callback(settings, brokers)
            findings += found
    with suppress(UnreadSettingError):
        findings += _of_policy(settings)
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


def _of_policy(settings: Settings) -> Iterator[Finding]:
    if settings.policy_file is None:
        yield Finding("policy", Grade.GOOD, "none is set")
        return
    with suppress(PolicyFileError):  # a fault of the settings already
        policy = read_policy(settings.policy_file)
        yield Finding(
            "policy", Grade.GOOD, f"rules: {len(policy.rules)}, of {settings.policy_file}"
        )


def _line(finding: Finding, settings: Settings) -> str:
    word = _FAILS if _fails(finding, settings) else _WORDS[finding.grade]
    return f"{word:<8} {finding.subject:<9} {finding.sentence}"


def _fails(finding: Finding, settings: Settings) -> bool:
    try:
        return finding.grade.fails(settings)
    except UnreadSettingError:  # the mode: the default is production
        return finding.grade not in (Grade.GOOD, Grade.RISKY, Grade.TOLERATED)
