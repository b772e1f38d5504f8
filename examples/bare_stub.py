"""What producer.py does, with nothing but the generated stub."""

import grpc
from google.protobuf.duration_pb2 import Duration
from jobwire.v1 import job_pb2, store_pb2, store_pb2_grpc

with grpc.insecure_channel("127.0.0.1:50051") as channel:
    store = store_pb2_grpc.StoreStub(channel)
    job = job_pb2.Job(
        queue="interactive",
        kind="text.count",
        payload=b"to be or not to be",
        dedup=job_pb2.Dedup(key="hamlet"),
        ttl=Duration(seconds=3600),
    )
    created = store.Create(store_pb2.CreateRequest(job=job), timeout=10).job
    get = store_pb2.GetRequest(id=created.id, view=job_pb2.JOB_VIEW_FULL, wait=Duration(seconds=30))
    done = store.Get(get, timeout=40).job
    print(job_pb2.JobStatus.Name(done.status), done.result.decode())
