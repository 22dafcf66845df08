"""The one error of this room, made to be shown to a person."""


class LocalDevError(Exception):
    """Say in one sentence what stops the local broker or database, and what to do about it."""
