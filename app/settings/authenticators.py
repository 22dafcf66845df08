"""In which ways callers may say who they are."""

from pydantic import Field

from app.settings.values import Fields


class Authenticators(Fields):
    """In which ways callers may say who they are."""

    authenticators: str = Field(
        "",
        description="Some of `bearer`, `certificate`, `proxy-certificate`, `basic`, in the order "
        "in which callers are told of them; default: all that are configured.",
    )
