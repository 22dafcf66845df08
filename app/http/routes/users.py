"""``GET /users/scram-credentials``: who has credentials, so that a quota can have a user."""

from fastapi import APIRouter, Request, Response

from app.http.declared import requires
from app.http.json_text import JsonResponse
from app.http.openapi import SCRAM_CREDENTIALS
from app.http.permissions import may_list_scram
from app.http.plain_route import PlainRoute
from app.http.query import read_query
from app.http.route_parameters import NO_PARAMETERS
from app.http.scram_documents import scram_users_json
from app.http.services import services_of

router = APIRouter(tags=["users"], route_class=PlainRoute)


@router.get("/users/scram-credentials", **SCRAM_CREDENTIALS)
@requires(may_list_scram)
async def describe_scram_credentials(request: Request) -> Response:
    """Tell mechanism and iterations of each user's SCRAM credentials; never a salt or a key."""
    read_query(request.scope["query_string"], NO_PARAMETERS)
    return JsonResponse(scram_users_json(await services_of(request).scram.scram_users()))
