"""Where this process listens, and what it writes."""

from pydantic import Field

from app.settings.values import Fields, LogFormat, LogLevel, Mode, Port


class Listener(Fields):
    """Where this process listens, and what it writes."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(
        8080, description="Port to listen on; 0 is any free one, which the log names as `url`."
    )
    mode: Mode = Field(Mode.PRODUCTION, description="`production` or `development`.")
    log_format: LogFormat = Field(LogFormat.JSON, description="`json` or `text`.")
    log_level: LogLevel = Field(LogLevel.INFO, description="`DEBUG`, `INFO`, `WARNING` or `ERROR`.")
