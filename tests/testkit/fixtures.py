"""The rule sets that the semantics are told with."""

from app.domain.entities import ClientQuotaEntity

_F1 = {
    ("user-1", "client-id-1"): 50.50,
    ("user-2", "client-id-1"): 51.51,
    ("user-3", "client-id-2"): 52.52,
    (None, "client-id-1"): 53.53,
    ("user-1", None): 54.54,
    ("user-3", None): 55.55,
}
_F1_USERS = {"user-1": 56.56, "user-2": 57.57, "user-3": 58.58, None: 59.59}


def describe_fixture() -> dict[ClientQuotaEntity, dict[str, float]]:
    """Return fixture F1: eleven user and client-id entities and two addresses."""
    quotas = {
        ClientQuotaEntity.of({"user": user, "client-id": client}): {"request_percentage": value}
        for (user, client), value in _F1.items()
    }
    for user, value in _F1_USERS.items():
        quotas[ClientQuotaEntity.of({"user": user})] = {"request_percentage": value}
    quotas[ClientQuotaEntity.of({"client-id": "client-id-2"})] = {"request_percentage": 60.60}
    for address, rate in {"1.2.3.4": 10.0, "2.3.4.5": 20.0}.items():
        quotas[ClientQuotaEntity.of({"ip": address})] = {"connection_creation_rate": rate}
    return quotas
