"""``GET /users/scram-credentials``: who has credentials, so that a quota can have a user."""

from typing import Annotated

from fastapi import Depends, Request, Response
from pydantic import Field
from typing_extensions import TypedDict

from app.http.encoding import JsonResponse, rfc3339
from app.http.guards import may_list_scram
from app.http.models import ClusterId, Time, closed
from app.http.responses import READING, answers
from app.http.route import feature_router
from app.http.services import services_of
from app.service.ports.brokers import ScramUsers as Users

router = feature_router("users")


@closed
class ScramCredential(TypedDict):
    """What Kafka reports of a credential: no salt and no key."""

    mechanism: Annotated[str, Field(description="`SCRAM-SHA-256` or `SCRAM-SHA-512`.")]
    iterations: Annotated[int, Field(ge=0, description="Of the hash.")]


@closed
class ScramUser(TypedDict):
    """A user with credentials."""

    user: Annotated[str, Field(description="The user's name, without `User:`.")]
    credentials: Annotated[list[ScramCredential], Field(description="One for each mechanism.")]


@closed
class ScramUsers(TypedDict):
    """The users that have SCRAM credentials."""

    cluster_id: ClusterId
    as_of: Time
    users: Annotated[list[ScramUser], Field(description="Those that have credentials, by name.")]


@router.get(
    "/users/scram-credentials",
    summary="Describe SCRAM credentials",
    dependencies=[Depends(may_list_scram)],
    responses=answers(
        ScramUsers, "The users that have SCRAM credentials.", "scram-credentials", errors=READING
    ),
)
async def describe_scram_credentials(request: Request) -> Response:
    """Report mechanism and iterations of each user's SCRAM credentials; never a salt or a key."""
    return JsonResponse(scram_users_json(await services_of(request).scram.scram_users()))


def scram_users_json(answer: Users) -> ScramUsers:
    """Return the users by name, with what Kafka reports of their credentials."""
    return {
        "cluster_id": answer.cluster_id,
        "as_of": rfc3339(answer.as_of),
        "users": [
            {
                "user": user,
                "credentials": [
                    {"mechanism": credential.mechanism, "iterations": credential.iterations}
                    for credential in credentials
                ],
            }
            for user, credentials in answer.users.items()
        ],
    }
