"""The generated stubs alone, as any language has them: `python examples/bare_stub.py [server]`."""

from __future__ import annotations

import sys

import grpc
from jobwire.v1 import job_pb2, store_pb2, store_pb2_grpc


def main(server: str) -> None:
    """Creates a job, claims it, completes it."""
    with grpc.insecure_channel(server) as channel:
        store = store_pb2_grpc.StoreStub(channel)
        job = job_pb2.Job(queue="stub", kind="greet", payload=b"world")
        job.ttl.FromSeconds(3600)
        created = store.Create(store_pb2.CreateRequest(job=job), timeout=10).job

        claim = store_pb2.ClaimRequest(queues=[store_pb2.QueueRef(queue="stub")], worker_id="bare")
        claim.wait.FromSeconds(5)
        for claimed in store.Claim(claim, timeout=15).jobs:
            lease = store_pb2.LeaseRef(namespace=claimed.job.namespace, id=claimed.job.id, token=claimed.lease_token)
            result = b"hello " + claimed.job.payload
            store.Complete(store_pb2.CompleteRequest(lease=lease, result=result), timeout=10)

        request = store_pb2.GetRequest(id=created.id, view=job_pb2.JOB_VIEW_FULL)
        done = store.Get(request, timeout=10).job
        print(done.id, job_pb2.JobStatus.Name(done.status), done.result.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051")
