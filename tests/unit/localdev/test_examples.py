from app.localdev.examples import GRANTS, QUOTAS


def shape(entity: dict[str, str | None]) -> tuple[tuple[str, bool], ...]:
    return tuple(sorted((kind, name is None) for kind, name in entity.items()))


def test_the_ten_quotas_cover_every_entity_shape():
    kinds = (None, False, True)  # absent, a name, the default
    pairs = {
        tuple(sorted((k, v) for k, v in (("user", u), ("client-id", c)) if v is not None))
        for u in kinds
        for c in kinds
    } - {()}
    expected = pairs | {(("ip", False),), (("ip", True),)}
    assert len(QUOTAS) == 10
    assert {shape(dict(entity)) for entity, _ in QUOTAS} == expected


def test_mallory_is_granted_nothing():
    assert {principal for principal, _ in GRANTS} == {"User:alice", "User:bob"}
