"""The contract's generated messages and stubs. Usable alone: `from jobwire.v1 import store_pb2, store_pb2_grpc`."""
