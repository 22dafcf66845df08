"""All that is wrong with the settings, told at once."""

from app.meanings.audit_log import database_url
from app.meanings.authenticators import ways
from app.meanings.certificates import proxied_certificates, tls_context
from app.meanings.cluster import kafka_settings
from app.meanings.pass_through import pass_through
from app.meanings.permissions import authorization_policy
from app.meanings.policy import policy_reader
from app.meanings.production import refuse_unsafe, warn
from app.meanings.proxies import trusted_proxies
from app.meanings.tokens import bearer_tokens, identity_provider
from app.settings import Settings, SettingsError


def refuse_every_fault(settings: Settings) -> None:
    """Read everything once, so that all that is wrong is told at once.

    Raises:
        SettingsError: With a line for each setting that cannot be used.
    """
    faults = []
    for read in (
        kafka_settings,
        database_url,
        authorization_policy,
        policy_reader,
        ways,
        bearer_tokens,
        identity_provider,
        trusted_proxies,
        tls_context,
        proxied_certificates,
        pass_through,
    ):
        try:
            read(settings)
        except SettingsError as error:
            faults.append(str(error))
    if not faults:
        faults = _unsafe(settings)
    if faults:
        raise SettingsError("\n".join(faults))


def _unsafe(settings: Settings) -> list[str]:
    """Return what is unsafe where that is a fault; in development it is warned of."""
    try:
        refuse_unsafe(settings)
    except SettingsError as error:
        return [str(error)]
    warn(settings)
    return []
