"""The `jobwire` command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from . import __version__

if TYPE_CHECKING:
    from jobwire.v1 import admin_pb2

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def serve(
    store_url: Annotated[
        str | None, typer.Option(help="Where jobs are kept, e.g. redis://host:6379/0. Unset: an engine of our own.")
    ] = None,
    listen: Annotated[str | None, typer.Option(help="host:port. Default 127.0.0.1:50051.")] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(help="host:port where Prometheus may read metrics. Default: nowhere.")
    ] = None,
    partitions: Annotated[int | None, typer.Option(help="Permanent for a deployment. Default 1.")] = None,
    key_prefix: Annotated[str | None, typer.Option(help="Begins every key. Default jobwire.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where an engine of our own keeps its data.")] = None,
    fsync: Annotated[str | None, typer.Option(help="Of an engine of our own: everysec or always.")] = None,
    drain_grace: Annotated[float | None, typer.Option(help="Seconds for calls to end. Default 30.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json. Default text.")] = None,
    max_calls: Annotated[int | None, typer.Option(help="Calls at a time. Default 2000.")] = None,
    max_streams: Annotated[int | None, typer.Option(help="Streams and waits at a time. Default 10000.")] = None,
) -> None:
    """Run a server until SIGTERM. Every option may be given as JOBWIRE_<OPTION> in the environment as well."""
    flags = {name: value for name, value in locals().items() if value is not None}
    # gRPC logs a failed bind by itself; we say it in one line.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Imported late: the other commands need none of this, and gRPC reads its environment when imported.
    from pydantic import ValidationError  # noqa: PLC0415

    from . import logs  # noqa: PLC0415
    from .app import StartError  # noqa: PLC0415
    from .app import serve as run  # noqa: PLC0415
    from .settings import Settings, in_one_line  # noqa: PLC0415

    try:
        settings = Settings(**flags)
        logs.set_up(settings.log_format)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run(settings))
    except ValidationError as error:
        _fail(in_one_line(error))
    except StartError as error:
        _fail(str(error))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def queues(
    server: Annotated[str, typer.Option(envvar="JOBWIRE_SERVER", help="host:port.")] = "127.0.0.1:50051",
    namespace: Annotated[str, typer.Option(help="Only this one's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Print the queues of a running server and what they hold."""
    import jobwire  # noqa: PLC0415

    try:
        with jobwire.connect_sync(server) as client:
            rows = [_row(queue) for queue in client.list_queues(namespace=namespace, page_size=1_000)]
    except jobwire.JobwireError as error:
        _fail(f"{server}: {error.message}")
    if as_json:
        typer.echo(json.dumps(rows))
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table("namespace", "queue", "ready", "scheduled", "running", "oldest ready since")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console().print(table)


def main() -> None:
    """The entry point."""
    app(prog_name="jobwire")


def _row(queue: admin_pb2.Queue) -> dict[str, Any]:
    stats = queue.stats
    since = stats.oldest_ready_time.ToJsonString() if stats.HasField("oldest_ready_time") else None
    return {
        "namespace": queue.ref.namespace,
        "queue": queue.ref.queue,
        "ready": stats.ready,
        "scheduled": stats.scheduled,
        "running": stats.running,
        "oldest_ready_time": since,
    }


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop


def _fail(message: str) -> NoReturn:
    typer.echo(f"jobwire: {message}", err=True)
    sys.exit(1)
