"""`python -m jobwire_server.demo [FOLDER] [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from rich.console import Console

from .processes import DemoError
from .run import run
from .screen import Screen


def main() -> int:
    """0: nothing was lost and nothing completed twice; 1: something was; 2: it could not run."""
    parser = argparse.ArgumentParser(prog="python -m jobwire_server.demo", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="what to index (default: where you are)")
    parser.add_argument(
        "--json", action="store_true", help="print the outcome as JSON; the rest goes to standard error"
    )
    options = parser.parse_args()
    output = Console()
    try:
        with Screen(Console(stderr=True) if options.json else output) as screen:
            report = asyncio.run(run(options.folder.expanduser().resolve(), screen))
    except DemoError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 2
    if options.json:
        sys.stdout.write(f"{report.as_json()}\n")
    else:
        output.print(report.as_table())
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
