"""What people look at in a browser: the page, the documentation, problems; all offline."""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Annotated, Final, Literal, NamedTuple, Self

from fastapi import Path, Request
from starlette.responses import HTMLResponse, Response

from app.domain.errors import NotFoundError, NotSentError
from app.http.authentication.bearer import Bearer
from app.http.authentication.discovery import SignIn
from app.http.guards import PUBLIC, PUBLIC_PAGE, services_of
from app.http.headers import best_match, list_field, names_tag
from app.http.models import JsonResponse, ResponseModel
from app.http.problem_catalog import PROBLEMS
from app.http.responses import answer_of, content_of, problems, text_answer
from app.http.route import feature_router

router = feature_router("operation")

_SAME_ORIGIN: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_SWAGGER_UI: Final = f"{_SAME_ORIGIN}; style-src 'self' 'unsafe-inline'"
"""The library writes styles into its elements."""

_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
"""By the end of a file's name; no other file is sent."""


class Asset(NamedTuple):
    """A file in memory: as it is and compressed, each with its entity tag."""

    media_type: str
    content: bytes
    compressed: bytes

    @classmethod
    def of(cls, name: str, content: bytes) -> Self:
        """Return the asset of a file's content."""
        compressed = gzip.compress(content, mtime=0)
        return cls(_TYPES[name.rpartition(".")[2]], content, compressed)

    def response(self, request: Request, security: str = _SAME_ORIGIN) -> Response:
        """Return the answer: 304 where the caller has it already."""
        takes_gzip = "gzip" in request.headers.get("accept-encoding", "")
        content = self.compressed if takes_gzip else self.content
        etag = f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'
        headers = {
            "ETag": etag,
            "Cache-Control": "no-cache",
            "Vary": "Accept, Accept-Encoding",
            "Content-Security-Policy": security,
            **({"Content-Encoding": "gzip"} if takes_gzip else {}),
        }
        if names_tag(list_field(request.headers, "if-none-match"), etag):
            return Response(None, HTTPStatus.NOT_MODIFIED, headers)
        return Response(content, headers=headers, media_type=self.media_type)


def _assets(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Asset]]:
    for file in folder.iterdir():
        name = f"{prefix}{file.name}"
        if file.is_dir():
            yield from _assets(file, f"{name}/")
        elif name.rpartition(".")[2] in _TYPES:
            yield name, Asset.of(name, file.read_bytes())


@cache
def page_assets() -> Mapping[str, Asset]:
    """Return the files of the page, and of the documentation, by name; read once."""
    swagger_ui = files("fastapi_offline") / "static"
    names = ("swagger-ui-bundle.js", "swagger-ui.css")
    return {
        **dict(_assets(files("app.http") / "static")),
        **dict(_assets(files("app.http") / "ui")),
        **{name: Asset.of(name, (swagger_ui / name).read_bytes()) for name in names},
    }


class Links(ResponseModel):
    """Where a program goes on."""

    quotas: str
    me: str
    page: str
    clusters: str
    openapi: str
    docs: str
    problems: str


class Service(ResponseModel):
    """What answers here."""

    service: Literal["kafka-quota-service"]
    version: str
    cluster_id: str | None
    """Null while no broker answers."""
    links: Links


_WITHIN_S: Final = 1.0
"""How long brokers may take to report the id of a cluster that has not reported it yet."""

_OF_CLUSTER: Final = {"quotas": "/quotas", "me": "/me", "page": "/ui/quotas"}
_OF_SERVICE: Final = {
    "clusters": "/clusters",
    "openapi": "/openapi.json",
    "docs": "/docs",
    "problems": "/problems/",
}


@router.get(
    "/",
    summary="Show the page, or what answers here",
    dependencies=PUBLIC_PAGE,
    responses={
        200: {
            **answer_of(Service, "A page for browsers, JSON for programs.", headers=("Vary",)),
            "content": {
                "application/json": content_of("service"),
                "text/html": content_of("start-page", schema={"type": "string"}),
            },
        },
    },
)
async def show_start(request: Request) -> Response:
    """Show the page to browsers, and to everybody else which service of which cluster this is."""
    accepted = best_match(list_field(request.headers, "accept"), ("application/json", "text/html"))
    if accepted == "text/html":
        return await _page_of(request)
    try:
        cluster_id = await services_of(request).cluster.cluster_id(timeout_s=_WITHIN_S)
    except NotSentError:
        cluster_id = None
    below = request.scope["root_path"]
    document = {
        "service": "kafka-quota-service",
        "version": version("kafka-quota-service"),
        "cluster_id": cluster_id,
        "links": {**{name: f"{below}{path}" for name, path in _OF_CLUSTER.items()}, **_OF_SERVICE},
    }
    return JsonResponse(document, headers={"Vary": "Accept"})


def _sign_in(request: Request) -> SignIn | None:
    authenticators = services_of(request).authenticators
    found = (each.sign_in for each in authenticators if isinstance(each, Bearer))
    return next(found, None)


async def _page_of(request: Request) -> Response:
    """Send the page; it may take a token from the identity provider, where there is one."""
    sign_in = _sign_in(request)
    endpoints = None if sign_in is None else await sign_in.endpoints()
    elsewhere = "" if endpoints is None else f"; connect-src 'self' {endpoints.token_origin}"
    return page_assets()["index.html"].response(request, _SAME_ORIGIN + elsewhere)


@router.get("/ui/sign-in.json", include_in_schema=False, dependencies=PUBLIC_PAGE)
async def show_sign_in(request: Request) -> Response:
    """Say with which credentials people can sign in on the page."""
    methods = [each.name for each in services_of(request).authenticators]
    sign_in = _sign_in(request)
    endpoints = None if sign_in is None else await sign_in.endpoints()
    oidc = None
    if sign_in is not None and endpoints is not None:
        oidc = {
            "issuer": sign_in.issuer,
            "authorization_endpoint": endpoints.authorization,
            "token_endpoint": endpoints.token,
            **sign_in.page._asdict(),
        }
    return JsonResponse({"methods": methods, "oidc": oidc}, headers={"Cache-Control": "no-cache"})


@router.get("/ui/{name:path}", include_in_schema=False, dependencies=PUBLIC_PAGE)
async def show_screen(request: Request, name: str) -> Response:
    """Send a file of the page; any other address below is one of its screens."""
    asset = page_assets().get(name)
    if asset is None and "." in name:
        raise NotFoundError("The page has no such file; it begins at /.")
    return await _page_of(request) if asset is None else asset.response(request)


@router.get("/favicon.ico", include_in_schema=False, dependencies=PUBLIC_PAGE)
async def show_icon(request: Request) -> Response:
    """Send the icon."""
    return page_assets()["favicon.svg"].response(request)


@router.get("/openapi.json", include_in_schema=False, dependencies=PUBLIC_PAGE)
async def show_document(request: Request) -> Response:
    """Send the OpenAPI document."""
    return JsonResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False, dependencies=PUBLIC_PAGE)
async def show_docs(request: Request) -> Response:
    """Show the OpenAPI document."""
    return page_assets()["docs.html"].response(request, _SWAGGER_UI)


_SECURITY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_FOR_OPERATORS: Final = "<h2>If you run this service</h2>\n<p>{}</p>\n"


@cache
def _template(name: str) -> Template:
    return Template((files("app.http") / "templates" / name).read_text(encoding="utf-8"))


def problem_page(code: str) -> str | None:
    """Return the page as HTML; null if there is no such problem."""
    problem = PROBLEMS.get(code)
    if problem is None:
        return None
    text = problem.words
    explanation = _template("problem.html").substitute(
        code=escape(code),
        cause=escape(text.cause),
        action=escape(text.action),
        operator=_FOR_OPERATORS.format(escape(text.operator)) if text.operator else "",
    )
    return _template("page.html").substitute(title=escape(text.title), body=explanation)


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
        **problems("NotFound"),
    },
)
async def show_problem(code: _Code) -> HTMLResponse:
    """Explain a problem to people: what it means and what to do."""
    page = problem_page(code)
    if page is None:
        raise NotFoundError("There is no problem of that name; /problems/ lists all.")
    return _page(page)


@router.get(
    "/problems/",
    summary="List the problems",
    dependencies=PUBLIC,
    response_class=HTMLResponse,
    responses={200: text_answer("A page for people.", "text/html", "problem-page")},
)
async def list_problems() -> HTMLResponse:
    """List every problem that this service answers, with a link to its page."""
    rows = (
        f'<li><a href="/problems/{code}">{escape(problem.words.title)}</a> '
        f"(<code>{code}</code>, {problem.status.value})</li>"
        for code, problem in sorted(PROBLEMS.items())
    )
    body = "\n".join(("<ul>", *rows, "</ul>\n"))
    return _page(_template("page.html").substitute(title="Problems", body=body))


def _page(text: str) -> HTMLResponse:
    return HTMLResponse(
        text,
        headers={"Content-Security-Policy": _SECURITY, "Cache-Control": "public, max-age=3600"},
    )
