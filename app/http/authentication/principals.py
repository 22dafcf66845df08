"""Names that a credential may give its caller."""

import re
from typing import Final

from app.http.errors import InvalidTokenError

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOBODY: Final = frozenset({"", "*", "ANONYMOUS"})
_TYPED: Final = re.compile(r"\s*user\s*:", re.IGNORECASE)
LONGEST_NAME: Final = 256
"""Of a user, in bytes of UTF-8: who has a longer one could not be recorded everywhere."""


def principal_of(name: object) -> str:
    """Return the principal of a user: ``User:`` and the name.

    Raises:
        InvalidTokenError: Nobody may have that name: it is no text, empty, ``ANONYMOUS``, the
            wildcard of ACLs, has control characters or blanks at an end, has over 256 bytes, or
            looks like a principal already, which would read as another one's.
    """
    if not isinstance(name, str) or name in _NOBODY or name != name.strip():
        raise InvalidTokenError("The credential names nobody.")
    if _CONTROL.search(name) or _TYPED.match(name):
        raise InvalidTokenError("The credential's name is one that nobody may have.")
    if len(name.encode()) > LONGEST_NAME:
        detail = f"The credential's name has over {LONGEST_NAME} bytes of UTF-8."
        raise InvalidTokenError(detail)
    return f"User:{name}"


def is_admissible(principal: str) -> bool:
    """Tell whether a principal of the tokens file may call: its name is not too long, nor typed."""
    name = principal.partition(":")[2]
    return len(name.encode(errors="replace")) <= LONGEST_NAME and _TYPED.match(name) is None
