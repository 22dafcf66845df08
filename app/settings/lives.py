"""How alterations are lived."""

from typing import Annotated

from pydantic import Field

from app.settings.values import Fields


class Lives(Fields):
    """How alterations are lived."""

    drift_interval_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        60.0, description="How often the cluster is compared with the audit log, in seconds."
    )
    test_failpoint: str = Field(
        "",
        description="For tests, in development only: kill or freeze at a point of an alteration.",
    )
    test_final_after_s: Annotated[float, Field(ge=1, le=95)] = Field(
        95.0, description="For tests, in development only: when recovery is final, in seconds."
    )
