"""How callers may say who they are; a request shows exactly one of these."""

from collections.abc import Mapping
from typing import Any, Final

SCHEMES: Final[Mapping[str, Any]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that the operator of the service gave to a principal, or one that "
        "an identity provider signed.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "User and password of the brokers, over TLS, where the operator allows it.",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "A client certificate, shown to the service or to a trusted proxy before "
        "it; the principal is the one that a broker makes of it.",
    },
}

CALLER: Final[Mapping[str, Any]] = {"security": [{name: []} for name in SCHEMES]}
"""Of an operation that needs a caller."""
