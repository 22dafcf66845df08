"""What ends a job before its time, each with the exit code of the command."""

from typing import ClassVar


class PipelineError(Exception):
    """Say in one sentence what stops the job, and what to do about it."""

    exit_code: ClassVar[int] = 5


class UsageError(PipelineError):
    """An option, or an input that an option names, is wrong."""

    exit_code = 2

    def __init__(self, message: str, *, content: str = "") -> None:
        """Take the sentence, and what the input holds: for the terminal, in no record."""
        super().__init__(message)
        self.content = content


class DataQualityError(PipelineError):
    """The results are published, and are not what they should be.

    A check failed and ``--fail-on dq`` asks for it, or a cluster of the input has no quotas.
    """

    exit_code = 3


class FindingsError(PipelineError):
    """The job found something, and ``--fail-on findings`` asks for it. It is published."""

    exit_code = 4


class InfrastructureError(PipelineError):
    """Spark, a broker, a database or a file system fails."""

    exit_code = 5
