"""``/docs``: the OpenAPI document in a browser, without internet access."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse, Response

from app.domain.errors import NotFoundError
from app.http.encoding import JsonResponse
from app.http.query_params import any_query
from app.http.route import GuardedRoute, everybody

_ASSETS: Final[Mapping[str, str]] = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}

_SECURITY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)

router = APIRouter(
    include_in_schema=False,
    route_class=GuardedRoute,
    dependencies=[Depends(everybody), Depends(any_query)],
)

_DOCUMENT: Final = "/openapi.json"


def install_docs(app: FastAPI) -> None:
    """Add the document, the page and its assets to an application made without any of them."""
    app.router.routes.extend(router.routes)


@router.get(_DOCUMENT)
async def show_document(request: Request) -> Response:
    """Send the OpenAPI document."""
    return JsonResponse(request.app.openapi())


@router.get("/docs")
async def show_docs(request: Request) -> HTMLResponse:
    """Show the OpenAPI document."""
    page = get_swagger_ui_html(
        openapi_url=_DOCUMENT,
        title=request.app.title,
        swagger_js_url="/docs/assets/swagger-ui-bundle.js",
        swagger_css_url="/docs/assets/swagger-ui.css",
        swagger_favicon_url="/docs/assets/favicon.png",
        swagger_ui_parameters={"persistAuthorization": True},
    )
    page.headers["Content-Security-Policy"] = _SECURITY
    return page


@router.get("/docs/assets/{name}")
async def show_asset(name: str) -> Response:
    """Send a part of the page, as it was installed with this service."""
    media_type = _ASSETS.get(name)
    if media_type is None:
        raise NotFoundError("The documentation has no such part.")
    asset = files("fastapi_offline") / "static" / name
    return FileResponse(str(asset), media_type=media_type)
