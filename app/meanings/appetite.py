"""What one caller may have."""

import logging

from app.http.rate_limits import Limits
from app.settings import PREFIX, Mode, Settings, SettingsError

logger = logging.getLogger(__name__)


def limits(settings: Settings) -> Limits:
    """Return what one caller may have.

    Raises:
        SettingsError: A limit is off, and the mode is production.
    """
    names = (
        "reads_per_s",
        "alterations_per_s",
        "requests_at_once",
        "authentication_failures_per_s",
    )
    off = ", ".join(f"{PREFIX}{name.upper()}" for name in names if not getattr(settings, name))
    if off and settings.mode is Mode.PRODUCTION:
        message = f"{off}: 0 is no limit, which needs QUOTAS_MODE=development."
        raise SettingsError(message)
    if off:
        logger.warning("one caller may use up this process: %s is 0", off)
    return Limits(*(getattr(settings, name) for name in names))
