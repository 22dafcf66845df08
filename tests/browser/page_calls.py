"""What the tests of the page do on it, by accessible names, and at the service beside it."""

from playwright.sync_api import Locator, Page

from app.domain.entities import ClientQuotaEntity
from tests.testkit.service import RunningService


def link(entity: dict[str, str | None], screen: str = "entity") -> str:
    return f"/ui/{screen}/{ClientQuotaEntity.of(entity).key}"


def set_quota(site: RunningService, entity: dict[str, str | None], **values: float) -> None:
    ops = [{"key": key, "value": value} for key, value in values.items()]
    site.alter({"entity": entity, "ops": ops}).raise_for_status()


def values_of(site: RunningService, user: str) -> dict[str, float]:
    answer = site.api("bob").get("/quotas", params={"filter": f"user={user}", "strict": "true"})
    found = answer.json()["quotas"]
    return dict(found[0]["values"]) if found else {}


def button(page: Page | Locator, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def field(page: Page | Locator, name: str) -> Locator:
    return page.get_by_label(name, exact=True)


def row(page: Page, table: str, text: str) -> Locator:
    found = page.get_by_role("table", name=table, exact=True).get_by_role("row")
    return found.filter(has_text=text).first
