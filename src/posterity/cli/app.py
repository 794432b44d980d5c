"""The commands, in one application, and how mistakes and Ctrl-C end."""

import errno
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import posterity
from posterity.cli.apply import evaluate, predict
from posterity.cli.comparing import compare, demo, train
from posterity.cli.console import printable
from posterity.cli.exporting import export
from posterity.cli.listing import data, methods
from posterity.cli.reproducing import reproduce
from posterity.cli.tuning import tune
from posterity.errors import Error


class Commands(TyperGroup):
    """A group whose commands end in a sentence, never in a traceback, when a user can mend the cause."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _note  # type: ignore[assignment]
                return super().invoke(ctx)
        except Error as error:
            _leave(str(error), 2, error)
        except KeyboardInterrupt as error:
            _leave("Stopped. Start the same command again to go on from what is finished.", 130, error)
        except OSError as error:
            if error.errno in (None, errno.EPIPE):
                raise
            where = f": {error.filename}" if error.filename else ""
            _leave(f"{error.strerror}{where}.", 2, error)

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which a newcomer needs them."""
        return list(self.commands)


app = typer.Typer(
    cls=Commands,
    name="posterity",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, compare, train, predict, evaluate, tune, export, reproduce, methods, data):
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        print(posterity.__version__)
        raise typer.Exit


@app.callback()
def posterity_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Honest uncertainty for neural networks.

    Start with `posterity demo`: it needs no data of yours and ends in a report within three minutes. Then
    compare methods on your own table: `posterity compare my.csv --target price`.
    """


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"Note: {printable(str(message))}", file=sys.stderr)


def _leave(sentence: str, status: int, cause: BaseException) -> None:
    print(("\n" if status == 130 else "") + printable(sentence), file=sys.stderr)
    raise typer.Exit(status) from cause
