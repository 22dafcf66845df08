"""An identity provider as the settings describe it, and what is made of it."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from app.http.authentication.json_web_tokens import JsonWebTokens, TokenRules
from app.http.authentication.signing_keys import KeySource, SigningKeys


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """Whose signed tokens are accepted.

    Attributes:
        rules: What a token must say.
        source: Where the keys are.
        trusted: The authorities that the provider's own certificate must come from.
    """

    rules: TokenRules
    source: KeySource
    trusted: ssl.SSLContext

    def keys(self, count_fetch: Callable[[str], None]) -> SigningKeys:
        """Return the keys; nothing is asked before the first token comes."""
        client = httpx.AsyncClient(verify=self.trusted, trust_env=False)
        return SigningKeys(self.source, client, count_fetch)

    def tokens(self, keys: SigningKeys) -> JsonWebTokens:
        """Return what judges tokens by those keys."""
        return JsonWebTokens(self.rules, keys)
