"""What the fault tests have to tell is printed at the end of the run, by whichever process ran them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.server.conftest import no_checks, no_looks

__all__ = ["no_checks", "no_looks"]

Tell = Callable[[str], None]
_LINE = "told"


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Adds a line to the summary."""
    return lambda line: record_property(_LINE, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    for report in reports:
        if report.when == "call":
            for name, line in report.user_properties:
                if name == _LINE:
                    terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")
