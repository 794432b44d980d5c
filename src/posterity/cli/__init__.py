"""The command line: `posterity --help`."""

import sys
from collections.abc import Sequence

from posterity.errors import Error, require


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit status: 0, 2 for a mistake that a user can mend, 130 for Ctrl-C."""
    try:
        require("typer")
        require("rich")
        from posterity.cli.app import app
    except Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    app(args=None if arguments is None else list(arguments), prog_name="posterity")
