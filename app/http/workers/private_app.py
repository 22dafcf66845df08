"""What a worker's Unix socket leads to: other workers hand requests on, and ask what was counted.

The socket lies in a directory of this user alone, so whoever comes in may be believed.
"""

from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.workers.carried import as_it_came

COUNTED: Final = "/counted"


class PrivateApp:
    """Answers the other workers.

    Args:
        app: The application behind everything that only this worker's own callers pass.
        counted: Returns what this worker has counted.
    """

    def __init__(self, app: ASGIApp, counted: Callable[[], bytes]) -> None:
        self._app = app
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] == COUNTED:
            await Response(self._counted())(scope, receive, send)
        else:
            await self._app(as_it_came(scope), receive, send)
