"""Where a server is, and the channels to it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass

import grpc

from ._limits import MESSAGE_BYTES

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # A dead connection is noticed though nothing is being called: the next call should not have to find out.
    # Servers allow a ping every 10 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Any ping, not only a keepalive: with another one in flight the timeout above never starts (seen with grpcio 1.82,
    # where a connection that swallowed everything stood for a minute).
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Else the channels of a process share a connection: heartbeats would wait behind payloads, and a new channel could
    # not replace a connection that is dead.
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC's own reconnecting waits up to two minutes, far longer than a server's restart.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_YES = ("1", "true", "yes")
"""What switches on gRPC's own help with forks; everything else leaves it off."""

_connected: set[str] = set()
"""The kinds of channels that this process, or one that it was forked from, has made."""
_inherited: set[str] = set()
"""Those that a process before the last fork has made."""


@dataclass(frozen=True)
class Endpoint:
    """A gRPC target (`host:port`, `unix:/path`, `dns:///host:port`, ...) and how to speak to it."""

    target: str
    tls: grpc.ChannelCredentials | None = None

    def channel(self) -> grpc.Channel:
        """A channel for blocking calls, with a connection of its own."""
        options = self._connecting("sync")
        if self.tls is None:
            return grpc.insecure_channel(self.target, options)
        return grpc.secure_channel(self.target, self.tls, options)

    def aio_channel(self) -> grpc.aio.Channel:
        """A channel for the running event loop, with a connection of its own."""
        options = self._connecting("aio")
        if self.tls is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, self.tls, options)

    def _connecting(self, kind: str) -> tuple[tuple[str, int], ...]:
        # Without the help that gRPC has for it, and with channels for event loops even so, every call would hang.
        if "aio" in _inherited or (_inherited and os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "").lower() not in _YES):
            raise RuntimeError(
                "this process was forked from one that had connected already, which gRPC does not survive: fork before "
                "connecting, or start processes by 'spawn' or 'forkserver'"
            )
        _connected.add(kind)
        return self._options()

    def _options(self) -> tuple[tuple[str, int], ...]:
        # A proxy named in the environment cannot reach this machine's own addresses.
        return (*_OPTIONS, ("grpc.enable_http_proxy", 0)) if is_local(self.target) else _OPTIONS


def is_local(target: str) -> bool:
    """Whether a target can only be this machine: a unix socket, `localhost` or loopback addresses."""
    scheme, colon, rest = target.partition(":")
    if scheme in ("unix", "unix-abstract", "vsock"):
        return True
    if colon and scheme in ("dns", "ipv4", "ipv6"):
        target = rest.rpartition("/")[2]
    return all(_is_loopback(address) for address in target.split(","))  # ipv4 and ipv6 take several


def _is_loopback(address: str) -> bool:
    host = (address.rpartition(":")[0] or address).strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: _inherited.update(_connected))
