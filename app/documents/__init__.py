"""Documents of quotas as text: YAML, JSON and CSV, each fault with its line."""

from typing import Final

API_VERSION: Final = "quotas/v1"
"""Of the document that describe writes as YAML and plans read."""
