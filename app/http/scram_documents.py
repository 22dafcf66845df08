"""SCRAM credentials as JSON documents."""

from typing import Any

from app.http.times import rfc3339
from app.service.reading.scram_credentials import ScramUsers


def scram_users_json(answer: ScramUsers) -> dict[str, Any]:
    """Return the users by name, with what Kafka tells of their credentials."""
    return {
        "cluster_id": answer.cluster_id,
        "as_of": rfc3339(answer.as_of),
        "users": [
            {
                "user": user,
                "credentials": [
                    {"mechanism": one.mechanism, "iterations": one.iterations}
                    for one in credentials
                ],
            }
            for user, credentials in answer.users.items()
        ],
    }
