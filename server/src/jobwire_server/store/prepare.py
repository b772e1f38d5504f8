"""From a CreateRequest to the job that a backend stores: defaults filled in, ids drawn, the partition fixed."""

from __future__ import annotations

import binascii
import hashlib
from typing import NamedTuple

from jobwire.v1 import job_pb2, store_pb2

from . import limits
from .draw import Draw
from .times import duration_ms, set_duration
from .validation import check_create


class Creation(NamedTuple):
    """One job to create.

    `job` is normalized: namespace, id, and every policy default filled in; `run_time` only if given.
    """

    partition: int
    job: job_pb2.Job
    delay_ms: int
    request_id: str
    parent_token: str
    request_hash: str
    nonce: str


def partition_of(namespace: str, job_id: str, partitions: int) -> int:
    """The partition of a job: by namespace and the root of its id (the text before the first "/")."""
    return _slot(namespace, job_id.partition("/")[0]) % partitions


def prepare(request: store_pb2.CreateRequest, draw: Draw, partitions: int, anywhere: int) -> Creation:
    """Checks and completes a request. A root job with neither id nor dedup key goes to the partition `anywhere`."""
    check_create(request)
    job = job_pb2.Job()
    job.CopyFrom(request.job)
    job.namespace = job.namespace or limits.DEFAULT_NAMESPACE
    if job.HasField("dedup"):
        job.dedup.scope = job.dedup.scope or job_pb2.DEDUP_SCOPE_WINDOW
        if not job.dedup.HasField("window"):
            set_duration(job.dedup.window, limits.WINDOW_DEFAULT_MS)
    if job.queue:
        _fill_policy(job)
    elif not job.status:
        job.status = job_pb2.JOB_STATUS_PENDING
    if request.job_id:
        job.id = request.job_id
    elif job.parent_id:
        job.id = f"{job.parent_id}/{draw.job_id()}"
    else:
        if job.HasField("dedup"):
            anywhere = _slot(job.namespace, job.tenant, job.dedup.key) % partitions
        job.id = _draw_id_in(anywhere, job.namespace, draw, partitions)
    return Creation(
        partition=partition_of(job.namespace, job.id, partitions),
        job=job,
        delay_ms=duration_ms(request.delay),
        request_id=request.request_id,
        parent_token=request.parent_token,
        request_hash=_request_hash(job) if job.HasField("dedup") else "",
        nonce=draw.nonce(),
    )


def cut_error(error: job_pb2.JobError) -> job_pb2.JobError:
    """An error whose texts fit the contract: the stack is cut first, then the message, on a character boundary."""
    cut = job_pb2.JobError()
    cut.CopyFrom(error)
    cut.message = _cut(error.message, limits.ERROR_TEXT_BYTES)
    cut.stack = _cut(error.stack, limits.ERROR_TEXT_BYTES - len(cut.message.encode()))
    return cut


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _fill_policy(job: job_pb2.Job) -> None:
    job.max_attempts = job.max_attempts or limits.MAX_ATTEMPTS_DEFAULT
    if not job.HasField("queue_timeout"):
        set_duration(job.queue_timeout, limits.QUEUE_TIMEOUT_DEFAULT_MS)
    if not job.retry.HasField("initial_backoff"):
        set_duration(job.retry.initial_backoff, limits.BACKOFF_INITIAL_DEFAULT_MS)
    if not job.retry.HasField("max_backoff"):
        set_duration(job.retry.max_backoff, limits.BACKOFF_MAX_DEFAULT_MS)
    job.retry.multiplier = job.retry.multiplier or limits.MULTIPLIER_DEFAULT


def _draw_id_in(partition: int, namespace: str, draw: Draw, partitions: int) -> str:
    while True:
        job_id = draw.job_id()
        if partition_of(namespace, job_id, partitions) == partition:
            return job_id


def _slot(*parts: str) -> int:
    # CRC-16/XMODEM, the checksum that Redis Cluster uses for its own slots.
    return binascii.crc_hqx("\n".join(parts).encode(), 0)


def _request_hash(job: job_pb2.Job) -> str:
    """What makes two requests under one dedup key the same: never trace context, times or labels.

    An encoding of our own (protobuf's is not canonical): each part behind its length, behind a version number.
    """
    digest = hashlib.sha256(b"1")
    parts = (job.queue, job.kind, job.parent_id, job.content_type, str(job.priority))
    for part in (*(part.encode() for part in parts), job.payload):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.hexdigest()[:32]
