"""What no request reveals about the cluster's authorizer."""

from app.domain.authorization import AuthorizerSettings, parse_super_users
from app.service.permissions.authorize import AuthorizationPolicy
from app.settings import Settings, SettingsError


def authorization_policy(settings: Settings) -> AuthorizationPolicy:
    """Return what the settings say about the cluster's authorizer.

    Raises:
        SettingsError: A list of principals cannot be read.
    """
    super_users = _principals("QUOTAS_SUPER_USERS", settings.super_users)
    return AuthorizationPolicy(
        AuthorizerSettings(super_users, settings.allow_everyone_if_no_acl_found),
        settings.insecure_allow_without_authorizer,
        _principals("QUOTAS_AUDITORS", settings.auditors),
    )


def _principals(name: str, text: str) -> frozenset[str]:
    try:
        return parse_super_users(text)
    except ValueError as error:
        message = f"{name}: {error}"
        raise SettingsError(message) from None
