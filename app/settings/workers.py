"""How many processes serve."""

from typing import Annotated

from pydantic import Field

from app.settings.values import Fields


class Workers(Fields):
    """How many processes serve."""

    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Processes that serve on the same port; 1 is this process itself."
    )
