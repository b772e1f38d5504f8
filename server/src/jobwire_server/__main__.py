"""`python -m jobwire_server` is `jobwire`."""

from .cli import main

main()
