"""Documents of quotas as text: YAML, JSON and CSV, each fault with its line."""

import re
from typing import Final

API_VERSION: Final = "quotas/v1"
"""Of the document that describe writes as YAML and plans read."""

CLUSTER_NAME: Final = re.compile(r"[a-z0-9-]{1,63}")
"""What one of several clusters may be called."""
