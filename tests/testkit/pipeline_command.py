"""The command `quota-pipeline` inside the process of a test."""

from app.pipeline.main import main


def exit_code(arguments: list[str]) -> object:
    """Run the command in this process; a wrong value of an option ends it by itself."""
    try:
        return main(arguments)
    except SystemExit as ending:
        return ending.code
