"""SCRAM credentials in memory."""

from datetime import UTC, datetime

from app.service.reading.scram_credentials import ScramCredential, ScramUsers


class FakeScramCredentials:
    """One user has credentials."""

    async def scram_users(self) -> ScramUsers:
        """See ``ScramCredentialSource``."""
        users = {"alice": (ScramCredential("SCRAM-SHA-512", 4096),)}
        return ScramUsers(users, datetime(2026, 11, 21, tzinfo=UTC), "cluster")
