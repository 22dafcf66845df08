"""The floor of any FastAPI service: a route that does nothing, on the service's server settings."""

import sys

import uvicorn
from fastapi import FastAPI, Response

app = FastAPI()


@app.get("/noop")
async def noop() -> Response:
    """Answer at once."""
    return Response(b"{}", media_type="application/json")


def main(port: int) -> None:
    """Serve until SIGTERM; the settings are those of ``app.serving``."""
    uvicorn.run(
        app,
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
    main(int(sys.argv[1]))
