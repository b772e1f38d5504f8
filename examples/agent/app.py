"""A scanning agent whose state is in a JobStore: every replica can answer for every scan, and go on with it.

    pip install 'jobwire[redis]' starlette uvicorn
    export JOB_STORE_URL=redis://127.0.0.1:6379/0 OTEL_SERVICE_NAME=scan-agent
    uvicorn --app-dir examples/agent app:app

POST   /scans              {"targets": ["a", "b"], "pause": 0.5} starts a scan: 201
GET    /scans              for debugging: the ids of the newest scans
GET    /scans/{id}         the scan, and its etag
DELETE /scans/{id}         cancels it; with If-Match only if that is its etag, else 412
POST   /scans/{id}/resume  goes on with it here, whoever had it before; If-Match as above
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

from jobwire.jobstore import (
    EtagMismatchError,
    InvalidJobError,
    JobNotFoundError,
    JobRecord,
    JobStatus,
    JobStoreError,
    Json,
    StoreUnavailableError,
    make_job_store,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

TTL_SECONDS = 3600
ENDED = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED}

job_store = make_job_store()  # reads JOB_STORE_URL; nothing is connected yet
downstream = asyncio.Semaphore(3)  # of this replica: how many targets it looks at in the same moment is no job state
tasks: set[asyncio.Task[None]] = set()


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Starts only if the store answers. At the end scans stop where they are; another replica may resume them."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(job_store)
        except JobStoreError as error:
            raise RuntimeError(f"cannot start: the job store: {error}") from None
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def start(request: Request) -> JSONResponse:
    match await request.json():
        case {"targets": [*targets], "pause": int() | float() as pause} if all(
            isinstance(name, str) for name in targets
        ):
            scan: Json = {"targets": targets, "pause": pause, "found": [], "run": uuid.uuid4().hex}
        case _:
            raise HTTPException(422, "a scan has targets, and a pause in seconds")
    record = await job_store.create(uuid.uuid4().hex, scan, ttl_seconds=TTL_SECONDS)
    run_in_background(record)
    return answer(record, 201)


async def show(request: Request) -> JSONResponse:
    return answer(await find(request))


async def show_ids(request: Request) -> JSONResponse:
    return JSONResponse({"ids": await job_store.list_ids(limit=100)})


async def cancel(request: Request) -> JSONResponse:
    return answer(await change(request, status=JobStatus.CANCELLED))


async def resume(request: Request) -> JSONResponse:
    record = await change(request, run=uuid.uuid4().hex)
    run_in_background(record)
    return answer(record)


async def find(request: Request) -> JobRecord:
    record = await job_store.get(request.path_params["id"])
    if record is None:
        raise HTTPException(404, "there is no such scan")
    return record


async def change(request: Request, *, status: JobStatus | None = None, run: str | None = None) -> JobRecord:
    """Changes a scan that has not ended, against whoever else changes it: only the version that was looked at."""
    wanted = request.headers.get("if-match", "").strip('"')
    while True:
        record = await find(request)
        if record.status in ENDED:
            raise HTTPException(409, f"the scan has {record.status}")
        payload: Any = record.payload
        try:
            return await job_store.update(
                record.job_id,
                status=status,
                payload={**payload, "run": run} if run else None,
                etag=wanted or record.etag,
            )
        except EtagMismatchError:
            if wanted:
                raise
        # Nobody asked for a version, so we look again.


class TakenAwayError(Exception):
    """The scan was cancelled or is gone, or another replica goes on with it."""


def run_in_background(record: JobRecord) -> None:
    task = asyncio.create_task(run(record.job_id, record.payload))
    tasks.add(task)  # the event loop itself keeps no task alive
    task.add_done_callback(tasks.discard)


async def run(scan_id: str, scan: Any) -> None:
    """Looks at the targets that are left, and keeps what it found after each."""
    found = scan["found"]
    try:
        await write(scan_id, scan, status=JobStatus.RUNNING)
        for target in scan["targets"][len(found) :]:
            found = [*found, await look(target, scan["pause"])]
            await write(scan_id, scan, payload={**scan, "found": found}, ttl_seconds=TTL_SECONDS)
        await write(scan_id, scan, status=JobStatus.SUCCEEDED, result=found)
    except TakenAwayError:
        return
    except Exception as error:
        with contextlib.suppress(TakenAwayError):
            await write(scan_id, scan, status=JobStatus.FAILED, error=f"{type(error).__name__}: {error}")


async def write(scan_id: str, scan: Any, **changes: Any) -> None:
    """Updates the scan if it is still ours. While the store is away, it waits. Raises TakenAwayError."""
    while True:
        try:
            record = await job_store.get(scan_id)
            payload: Any = record and record.payload
            if record is None or record.status in ENDED or payload["run"] != scan["run"]:
                raise TakenAwayError
            await job_store.update(scan_id, etag=record.etag, **changes)
            return
        except EtagMismatchError:
            continue  # somebody changed it in between: look who
        except JobNotFoundError:
            raise TakenAwayError from None
        except StoreUnavailableError:
            await asyncio.sleep(0.5)


async def look(target: str, pause: float) -> str:
    """Your work here."""
    async with downstream:
        await asyncio.sleep(pause)
        return target.upper()


def answer(record: JobRecord, status_code: int = 200) -> JSONResponse:
    return JSONResponse(record.to_dict(), status_code, headers={"ETag": f'"{record.etag}"'})


def refuse(status_code: int) -> Any:
    async def handler(request: Request, error: Exception) -> JSONResponse:
        headers = {"Retry-After": "1"} if status_code == 503 else None
        return JSONResponse({"error": str(error)}, status_code, headers=headers)

    return handler


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/scans", start, methods=["POST"]),
        Route("/scans", show_ids),
        Route("/scans/{id}", show),
        Route("/scans/{id}", cancel, methods=["DELETE"]),
        Route("/scans/{id}/resume", resume, methods=["POST"]),
    ],
    exception_handlers={
        InvalidJobError: refuse(422),
        JobNotFoundError: refuse(404),
        EtagMismatchError: refuse(412),
        StoreUnavailableError: refuse(503),
    },
)
