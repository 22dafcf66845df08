"""The use cases, written against the ports of ``app.service.ports``."""
