"""Pages for people: the OpenAPI document in a browser without internet access, and each problem."""

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Annotated, Final

from fastapi import Depends, Path, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse, Response

from app.domain.errors import NotFoundError
from app.http.encoding import JsonResponse
from app.http.guards import PUBLIC
from app.http.problem_catalog import PROBLEMS, Words
from app.http.query_params import any_query
from app.http.responses import ANY, problems, text_answer
from app.http.route import feature_router

router = feature_router("operation")

_ASSETS: Final[Mapping[str, str]] = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}

_DOCS_SECURITY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)

_DOCUMENT: Final = "/openapi.json"
_UNREAD: Final = [*PUBLIC, Depends(any_query)]
"""Of pages that everybody sees, whatever the query."""


@router.get(_DOCUMENT, include_in_schema=False, dependencies=_UNREAD)
async def show_document(request: Request) -> Response:
    """Send the OpenAPI document."""
    return JsonResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False, dependencies=_UNREAD)
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
    page.headers["Content-Security-Policy"] = _DOCS_SECURITY
    return page


@router.get("/docs/assets/{name}", include_in_schema=False, dependencies=_UNREAD)
async def show_asset(name: str) -> Response:
    """Send a file of the page, as it was installed with this service."""
    media_type = _ASSETS.get(name)
    if media_type is None:
        raise NotFoundError("The documentation has no such file.")
    asset = files("fastapi_offline") / "static" / name
    return FileResponse(str(asset), media_type=media_type)


_SECURITY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:1rem/1.5 sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}}</style>
</head>
<body>
<h1>{title}</h1>
<p><code>{code}</code></p>
<h2>What it means</h2>
<p>{cause}</p>
<h2>What to do</h2>
<p>{action}</p>
{operator}<h2>May the request be repeated?</h2>
<p>The member <code>retry</code> of the answer tells: <code>safe</code> as it is,
<code>same-key-only</code> with the same <code>Idempotency-Key</code> alone, <code>never</code>
not without a change. The member <code>sent_to_cluster</code> tells whether the cluster has seen
it.</p>
</body>
</html>
"""

_FOR_OPERATORS: Final = "<h2>If you run this service</h2>\n<p>{}</p>\n"


def problem_page(code: str) -> str | None:
    """Return the page as HTML; null if there is no such problem."""
    problem = PROBLEMS.get(code)
    return None if problem is None else _rendered(code, problem.words)


def _rendered(code: str, text: Words) -> str:
    return _PAGE.format(
        code=escape(code),
        title=escape(text.title),
        cause=escape(text.cause),
        action=escape(text.action),
        operator=_FOR_OPERATORS.format(escape(text.operator)) if text.operator else "",
    )


_Code = Annotated[
    str,
    Path(
        description="The `code` of a problem.",
        json_schema_extra={"enum": list(PROBLEMS)},
        openapi_examples={"entity-busy": {"value": "entity-busy"}},
    ),
]


@router.get(
    "/problems/{code}",
    summary="Explain a problem",
    dependencies=PUBLIC,
    response_class=HTMLResponse,
    responses={
        200: text_answer("A page for people.", "text/html", "problem-page"),
        **problems(*ANY, "NotFound"),
    },
)
async def show_problem(code: _Code) -> HTMLResponse:
    """Explain a problem to people: what it means and what to do."""
    page = problem_page(code)
    if page is None:
        raise NotFoundError("There is no problem of that name.")
    return HTMLResponse(
        page,
        headers={"Content-Security-Policy": _SECURITY, "Cache-Control": "public, max-age=3600"},
    )
