"""jobwire-server: the job store, the gRPC server and the `jobwire` command.

Layers, each importing only those below it: `cli`/`app`, `rpc`, `dispatch`, `store`.
"""

__version__ = "0.1.0"
