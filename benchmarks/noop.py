"""The floor of any FastAPI service: routes that do nothing, on the service's server settings."""

import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.http.authentication.bearer import BearerTokens


def application(tokens: BearerTokens) -> FastAPI:
    """Return the two routes; one reads the caller's token as the service does."""
    app = FastAPI()

    async def principal(
        credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
    ) -> str:
        principal = tokens.principal(credentials.credentials)
        if principal is None:
            raise HTTPException(401)
        return principal

    @app.get("/noop")
    async def noop() -> Response:
        return Response(b"{}", media_type="application/json")

    @app.get("/noop/authenticated", dependencies=[Depends(principal)])
    async def noop_authenticated() -> Response:
        return Response(b"{}", media_type="application/json")

    return app


def main(port: int, tokens_file: Path) -> None:
    """Serve until SIGTERM; the settings are those of ``app.serving``."""
    uvicorn.run(
        application(BearerTokens(tokens_file)),
        host="127.0.0.1",
        port=port,
        log_config=None,
        access_log=False,
        http="httptools",
        loop="uvloop",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        backlog=2048,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
