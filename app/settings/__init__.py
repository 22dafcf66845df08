"""Settings: environment variables ``QUOTAS_…``, read once; a misspelt one stops the start-up."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Self

from pydantic import ValidationError

from app.settings.authenticators import Authenticators
from app.settings.cluster import Cluster
from app.settings.credentials import Credentials
from app.settings.database import AuditLog
from app.settings.limits import Appetite
from app.settings.listener import Listener
from app.settings.lives import Lives
from app.settings.pass_through import PassThrough
from app.settings.permissions import Permissions
from app.settings.policy import Narrowing
from app.settings.production import Production
from app.settings.proxies import Proxies
from app.settings.timeouts import Timeouts
from app.settings.tls import Tls
from app.settings.values import PREFIX, LogFormat, LogLevel, Mode, SettingsError
from app.settings.workers import Workers

__all__ = ["LOCAL_ONLY", "PREFIX", "LogFormat", "LogLevel", "Mode", "Settings", "SettingsError"]

LOCAL_ONLY: Final = frozenset({"QUOTAS_LOCAL_DIR", "QUOTAS_LOCAL_KAFKA_VERSION"})
"""Variables of ``dev`` that a service ignores."""


class Settings(
    Workers,
    Production,
    Narrowing,
    Proxies,
    Tls,
    PassThrough,
    Lives,
    Timeouts,
    Appetite,
    Permissions,
    Authenticators,
    Credentials,
    AuditLog,
    Cluster,
    Listener,
):
    """All of them; the documents list those of the last topic named here first."""

    @property
    def stop_delay_s(self) -> float:
        """How long a stop is announced before it begins, in seconds."""
        return self.shutdown_delay_s if self.mode is Mode.PRODUCTION else 0.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings.

        Raises:
            SettingsError: Something is missing, misspelt or of the wrong form.
        """
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and name not in LOCAL_ONLY and value != ""
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(_sentences(error)) from None

    @property
    def owner_database_url(self) -> str:
        """The URL that ``migrate`` connects with."""
        return (self.migration_database_url or self.database_url).get_secret_value()


def _sentences(error: ValidationError) -> str:
    """Name each variable; values are never repeated, they may be secrets."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        field = str(problem["loc"][0])
        match problem["type"]:
            case "missing":
                what = f"is needed and not set. {_meaning(field)}"
            case "extra_forbidden":
                what = f"is not a setting of this service; check its spelling.{_alike(field)}"
            case _:
                what = f"{problem['msg']}."
        lines.append(f"{PREFIX}{field.upper()} {what}")
    return "\n".join(sorted(lines))


def _meaning(field: str) -> str:
    return f"It is: {Settings.model_fields[field].description}".replace("`", "")


def _alike(field: str) -> str:
    near = get_close_matches(field, Settings.model_fields, 1)
    return f" Is it {PREFIX}{near[0].upper()}?" if near else ""
