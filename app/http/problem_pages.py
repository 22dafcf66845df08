"""``GET /problems/{code}``: what a problem means, for people."""

from html import escape
from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.responses import HTMLResponse

from app.domain.errors import NotFoundError
from app.http.problem_catalog import PROBLEMS, ProblemText
from app.http.responses import ANY, problems, text_answer
from app.http.route import PUBLIC, GuardedRoute, operation_id

router = APIRouter(
    tags=["operation"], route_class=GuardedRoute, generate_unique_id_function=operation_id
)

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
<p>{meaning}</p>
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
    text = PROBLEMS.get(code)
    return None if text is None else _rendered(code, text)


def _rendered(code: str, text: ProblemText) -> str:
    return _PAGE.format(
        code=escape(code),
        title=escape(text.title),
        meaning=escape(text.meaning),
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
