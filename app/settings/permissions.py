"""What no request reveals about the rights in the cluster."""

from pydantic import Field

from app.settings.values import Fields


class Permissions(Fields):
    """What no request reveals about the rights in the cluster."""

    super_users: str = Field(
        "", description="`User:admin;User:ops`; mirrors the broker's `super.users`."
    )
    allow_everyone_if_no_acl_found: bool = Field(
        False, description="Mirrors the broker's `allow.everyone.if.no.acl.found`."
    )
    auditors: str = Field("", description="`User:auditor;…`: who may read every audit row.")
    insecure_allow_without_authorizer: bool = Field(
        False, description="Serve everybody on a cluster without an authorizer."
    )
