"""httpx without its own command line, whose imports take longer than all the rest of a call.

httpx does without it where its extra packages are missing; here it is told that they are, unless
it was imported already.
"""

import sys
from typing import Any, Final

_COMMAND_LINE: Final = "httpx._main"

_modules: dict[str, Any] = sys.modules
_modules.setdefault(_COMMAND_LINE, None)

import httpx  # noqa: E402

if _modules[_COMMAND_LINE] is None:
    del _modules[_COMMAND_LINE]

__all__ = ["httpx"]
