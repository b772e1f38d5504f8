#!/bin/sh
# Generates the Python messages and stubs from proto/ into the folder given (default: the client's sources).
#
# The compiler and its runtime are pinned (tools/constraints-gen.txt) to an old protobuf on purpose: older generated
# code works on newer runtimes, never the other way round. mypy-protobuf needs a newer protobuf than the compiler, so
# it stands in an environment of its own and is called as a plugin.
set -eu
cd "$(dirname "$0")/.."
out=${1:-client/src}
python=${PYTHON:-python3}
envs=.venv-gen
stamp=$envs/$(cat tools/constraints-gen.txt tools/generate.sh | cksum | tr ' ' '-')
if [ ! -f "$stamp" ]; then
  rm -rf "$envs"
  "$python" -m venv "$envs/compiler"
  "$python" -m venv "$envs/typing"
  "$envs/compiler/bin/pip" install -q --disable-pip-version-check -c tools/constraints-gen.txt grpcio-tools protobuf
  "$envs/typing/bin/pip" install -q --disable-pip-version-check 'mypy-protobuf==5.1.0'
  touch "$stamp"
fi
"$envs/compiler/bin/python" -m grpc_tools.protoc -I proto \
  --plugin=protoc-gen-mypy="$envs/typing/bin/protoc-gen-mypy" \
  --plugin=protoc-gen-mypy_grpc="$envs/typing/bin/protoc-gen-mypy_grpc" \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" --mypy_grpc_out="$out" \
  proto/jobwire/v1/job.proto proto/jobwire/v1/store.proto proto/jobwire/v1/admin.proto
rm -f "$out/jobwire/v1/job_pb2_grpc.py" "$out/jobwire/v1/job_pb2_grpc.pyi"   # job.proto has no service
