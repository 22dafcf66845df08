"""What settings are made of: their prefix, their modes, the error that stops a start-up."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

PREFIX: Final = "QUOTAS_"


class SettingsError(Exception):
    """The settings cannot be used; the text names each variable and says why."""


class Mode(StrEnum):
    """In development an unsafe setting is a warning, in production it stops the start-up."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """From which severity on a line is written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""So many a second; 0 for no limit, in development only."""

Port = Annotated[int, Field(ge=0, le=65535)]


class Fields(BaseModel):
    """Settings of one topic; each field is ``QUOTAS_<FIELD>`` in upper case."""

    model_config = ConfigDict(frozen=True, extra="forbid")
