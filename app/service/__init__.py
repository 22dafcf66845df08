"""The use cases, written against ports: what they need of the outside."""
