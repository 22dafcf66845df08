"""The policy that narrows what the ACLs allow."""

from collections.abc import Callable
from functools import partial

from app.http.policy_file import PolicyFileError, read_policy
from app.service.permissions.policy import PolicyInForce
from app.settings import Settings, SettingsError


def policy_reader(settings: Settings) -> Callable[[], PolicyInForce] | None:
    """Return what reads the policy again; null where there is none.

    Raises:
        SettingsError: The file cannot be used; a line for each fault.
    """
    if settings.policy_file is None:
        return None
    read = partial(read_policy, settings.policy_file)
    try:
        read()
    except PolicyFileError as error:
        lines = [f"QUOTAS_POLICY_FILE: {fault}" for fault in str(error).splitlines()]
        raise SettingsError("\n".join(lines)) from None
    return read
