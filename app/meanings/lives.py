"""How alterations are lived."""

import os
import secrets
import socket

from app.lives import LifeSettings
from app.service.alterations.failpoints import Failpoints
from app.service.recovery.recover import FINAL_AFTER_S
from app.settings import Mode, Settings, SettingsError


def life_settings(settings: Settings) -> LifeSettings:
    """Return how alterations are lived; what is for tests works in development only.

    Raises:
        SettingsError: There is no such failpoint, or the mode is production.
    """
    tested = settings.test_failpoint or settings.test_final_after_s != FINAL_AFTER_S
    if tested and settings.mode is Mode.PRODUCTION:
        message = "QUOTAS_TEST_… is for tests: it needs QUOTAS_MODE=development."
        raise SettingsError(message)
    try:
        points = Failpoints.read(settings.test_failpoint)
    except ValueError as error:
        message = f"QUOTAS_TEST_FAILPOINT: {error}"
        raise SettingsError(message) from None
    return LifeSettings(
        owner_name(),
        points,
        settings.test_final_after_s,
        settings.drift_interval_s,
        settings.patience,
    )


def owner_name() -> str:
    """Return a name for this process in the log, which no other process has had."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
