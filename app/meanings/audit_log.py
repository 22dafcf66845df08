"""Where the audit log is."""

from app.postgres.parameters import read_url
from app.settings import Settings, SettingsError


def database_url(settings: Settings) -> str:
    """Return the URL of the audit log.

    Raises:
        SettingsError: It cannot be read.
    """
    url = settings.database_url.get_secret_value()
    try:
        read_url(url)
    except ValueError as error:
        message = f"QUOTAS_DATABASE_URL: {error}"
        raise SettingsError(message) from None
    return url
