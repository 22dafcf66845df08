"""Which proxies are believed, and what."""

import ipaddress
import logging
from collections.abc import Sequence

from app.http.authentication.client_cert_header import ClientCertHeader
from app.http.authentication.forwarded import ForwardedHeader
from app.http.authentication.trusted_proxies import Network, TrustedProxies
from app.settings import Mode, Settings, SettingsError

logger = logging.getLogger(__name__)


def trusted_proxies(settings: Settings) -> TrustedProxies:
    """Return which proxies are believed.

    Raises:
        SettingsError: They cannot be read, or are everybody in production; or a header is to be
            believed and nobody is.
    """
    networks = _networks(settings.trusted_proxies)
    if _is_everybody(networks):
        message = "QUOTAS_TRUSTED_PROXIES: everybody is no proxy; name the proxies' addresses."
        if settings.mode is Mode.PRODUCTION:
            raise SettingsError(message)
        logger.warning("anybody may claim to be anybody: %s", message)
    for name, is_set in (
        ("QUOTAS_FORWARDED_HEADER", settings.forwarded_header is not ForwardedHeader.NONE),
        ("QUOTAS_CLIENT_CERT_HEADER", settings.client_cert_header is not ClientCertHeader.NONE),
    ):
        if is_set and not networks:
            message = f"QUOTAS_TRUSTED_PROXIES is needed with {name} and not set."
            raise SettingsError(message)
    return TrustedProxies(networks, settings.forwarded_header)


def _networks(text: str) -> Sequence[Network]:
    networks: list[Network] = []
    for item in filter(None, map(str.strip, text.split(","))):
        try:
            network = ipaddress.ip_network(item)
        except ValueError as error:
            message = f"QUOTAS_TRUSTED_PROXIES: {error}."
            raise SettingsError(message) from None
        if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped:
            message = f"QUOTAS_TRUSTED_PROXIES: write {item} as an IPv4 address or network."
            raise SettingsError(message)
        networks.append(network)
    return networks


def _is_everybody(networks: Sequence[Network]) -> bool:
    version_4 = [one for one in networks if isinstance(one, ipaddress.IPv4Network)]
    version_6 = [one for one in networks if isinstance(one, ipaddress.IPv6Network)]
    collapsed: list[Network] = [
        *ipaddress.collapse_addresses(version_4),
        *ipaddress.collapse_addresses(version_6),
    ]
    return any(network.prefixlen == 0 for network in collapsed)
