"""JSON pointers: places in a body. Source: RFC 6901."""


def child(pointer: str, token: str | int) -> str:
    """Return the pointer to a member or an item below ``pointer``."""
    return f"{pointer}/{str(token).replace('~', '~0').replace('/', '~1')}"
