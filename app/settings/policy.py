"""What takes away from the rights that the ACLs give."""

from pathlib import Path

from pydantic import Field

from app.settings.values import Fields


class Narrowing(Fields):
    """What takes away from the rights that the ACLs give."""

    policy_file: Path | None = Field(
        None,
        description="YAML file of who may alter which quotas within which bounds; SIGHUP reads it "
        "again. See `docs/policy.md`.",
    )
