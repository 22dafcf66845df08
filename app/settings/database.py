"""Where the audit log is."""

from pydantic import Field, SecretStr

from app.settings.values import Fields


class AuditLog(Fields):
    """Where the audit log is."""

    database_url: SecretStr = Field(description="`postgresql://…`, the service's role.")
    migration_database_url: SecretStr | None = Field(
        None, description="The owner of the tables, for `migrate`; default: `QUOTAS_DATABASE_URL`."
    )
