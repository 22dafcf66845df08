"""Who causes the next image to be asked for ahead of its time."""

import pytest

from app.kafka.image import QuotaImage
from app.kafka.kept_answer import KeptAnswer
from tests.testkit.fake_ports import FakeBrokers


async def test_whoever_is_given_a_kept_image_may_begin_the_next_and_nobody_who_waited(
    monkeypatch: pytest.MonkeyPatch,
):
    offered: list[float] = []

    def refresh_ahead(_: KeptAnswer[object], max_age_s: float, age_s: float) -> None:
        assert 0 <= age_s <= max_age_s
        offered.append(max_age_s)

    monkeypatch.setattr(KeptAnswer, "refresh_ahead", refresh_ahead)
    image = QuotaImage(FakeBrokers([]))
    for max_age_ms in (60_000, 0, 0, 30_000, 20_000):
        await image.image(max_age_ms=max_age_ms)
    assert offered == [30.0, 20.0]
    image.forget()
    await image.image(max_age_ms=60_000)
    assert offered == [30.0, 20.0]
    await image.close()
