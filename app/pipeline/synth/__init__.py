"""Made-up observations and quotas."""
