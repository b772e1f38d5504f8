"""The way to the engine: calls of many tasks, gathered into pipelines on one connection.

While one pipeline is under way, what arrives is gathered and goes out as the next ("natural batching"), so a lone call
waits for nothing and a crowd pays one round trip together. The pipeline runs in a task of its own: a caller that is
cancelled never leaves an unread answer behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from jobwire.v1 import job_pb2
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from jobwire_server.store.errors import StoreError, engine_unavailable

from .scripts import Script, Source

Argument = str | bytes | int

# Passing states of the engine: retried for a moment, then UNAVAILABLE. Every script can be repeated. redis-py makes a
# class of most, and takes the word that names it out of the text; within a script's error the word stays.
_PASSING = (
    *(exceptions.ConnectionError, exceptions.TimeoutError, OSError, asyncio.TimeoutError),
    *(exceptions.ReadOnlyError, exceptions.TryAgainError, exceptions.ClusterDownError, exceptions.MasterDownError),
    *(exceptions.MovedError, exceptions.AskError),
)
_PASSING_WORDS = re.compile(
    r"(?:^|-)(?:LOADING|READONLY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|BUSY|MOVED|ASK|NOREPLICAS|MISCONF)\b|non local key"
)
_REFUSALS = (exceptions.AuthenticationError, exceptions.NoPermissionError)
_TRIES = 4
_FIRST_PAUSE_S = 0.05

# A pipeline's size, so that one round trip stays short.
_PIPELINE = 500


class _Call(NamedTuple):
    script: Script
    key: str
    args: Sequence[Argument]
    answer: asyncio.Future[Any]


def client_options(url: str, **more: Any) -> dict[str, Any]:
    """What every connection of ours sets, since redis-py's defaults change between releases."""
    return {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": 5.0,
        "socket_connect_timeout": 2.0,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),  # ours, below: it knows what may be repeated
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
        **more,
    }


def new_client(url: str, max_connections: int, **more: Any) -> Redis:
    """A client with our options, whose connections say so when they were closed."""
    client: Redis = Redis.from_url(url, max_connections=max_connections, **client_options(url, **more))
    pool = client.connection_pool
    kind = pool.connection_class
    pool.connection_class = type(kind.__name__, (_Connection, kind), {})
    return client


class _Connection(AbstractConnection):
    """To be put before a kind of connection. uvloop closes a connection that the other end has reset at once, and then
    raises its own sort of error at whoever writes to it, which redis-py takes for a bug.
    """

    async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        """As it is, but for the error."""
        try:
            await super().send_packed_command(*args, **kwargs)
        except RuntimeError as error:
            if "closed" in str(error):
                raise exceptions.ConnectionError("the connection was closed") from error
            raise


def _client(url: str) -> Redis:
    # No error quotes the URL, nor what a parser says of it: that may be a piece of the password.
    try:
        parts = urlsplit(url)
        if parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            raise ValueError("its password held one of / ? #")
        client = new_client(url, 4)
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # options are looked at only here
    except ValueError:
        raise ValueError("not a usable engine URL (special characters in a password must be %-encoded)") from None
    except TypeError as error:
        option = re.search(r"'(\w+)'$", str(error))
        raise ValueError(f"the engine URL has an unknown option {option[1] if option else ''}".rstrip()) from None
    if parts.scheme != "unix" and not parts.path.strip("/").isdigit() and parts.path.strip("/"):
        raise ValueError("the engine URL's database must be a number")
    return client


def check_url(url: str) -> None:
    """Raises ValueError if nothing can be reached by such a URL."""
    _client(url)


class Engine:
    """Runs scripts. Raises `StoreError` for every state of the engine that the contract knows.

    `rehearse`: the engine is a cluster, whose slots may move while a script runs (see `loader.rehearsed`).
    """

    def __init__(self, url: str, *, rehearse: bool = False) -> None:
        self._rehearse = rehearse
        self.round_trip: Callable[[float], None] | None = None
        """Told of each pipeline how many seconds it took."""
        self.client = _client(url)
        self._waiting: list[_Call] = []
        self._flushing: asyncio.Task[None] | None = None

    async def run(self, script: Script, key: str, args: Sequence[Argument]) -> Any:
        """Runs a script whose keys all stand in the slot of `key`, and answers what it returned."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(script, key, args, answer))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="jobwire-engine")
        return await answer

    async def close(self) -> None:
        """Waits for what is under way, then lets go of the connections."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self.client.aclose()

    async def _flush(self) -> None:
        try:
            while self._waiting:
                calls = [call for call in self._waiting[:_PIPELINE] if not call.answer.done()]
                del self._waiting[:_PIPELINE]
                # Nobody may be left waiting, whatever goes wrong here.
                try:
                    await self._settle(calls)
                except Exception as error:
                    _fail(calls, error)
                except asyncio.CancelledError:
                    _fail(calls + self._waiting, exceptions.ConnectionError("the store is closing"))
                    raise
        finally:
            self._flushing = None

    async def _settle(self, calls: list[_Call]) -> None:
        """Gives each call its answer or error; repeats those that met a passing state."""
        for attempt in range(1, _TRIES + 1):
            failed: list[tuple[_Call, Exception]] = []
            for call, answer in zip(calls, await self._send(calls), strict=True):
                if call.answer.done():
                    continue
                if not isinstance(answer, Exception):
                    call.answer.set_result(answer)
                elif _is_passing(answer):
                    failed.append((call, answer))
                else:
                    call.answer.set_exception(_as_store_error(answer))
            if not failed:
                return
            if attempt == _TRIES:
                for call, error in failed:
                    call.answer.set_exception(_as_store_error(error))
                return
            calls = [call for call, _ in failed]
            # A pause with full jitter, so that the replicas of a deployment do not come back in step.
            await asyncio.sleep(random.uniform(0, _FIRST_PAUSE_S * 2**attempt))  # noqa: S311

    async def _send(self, calls: list[_Call]) -> list[Any]:
        """One pipeline, one answer or error per call.

        Scripts that the engine does not know (after a restart or SCRIPT FLUSH) follow with their text.
        """
        if not calls:
            return []
        began = time.perf_counter()
        try:
            answers = await self._execute([(call, "EVALSHA", self._source(call).sha) for call in calls])
            unknown = [i for i, answer in enumerate(answers) if isinstance(answer, exceptions.NoScriptError)]
            if unknown:
                texts = await self._execute([(calls[i], "EVAL", self._source(calls[i]).text) for i in unknown])
                for i, answer in zip(unknown, texts, strict=True):
                    answers[i] = answer
        except (TimeoutError, exceptions.RedisError, OSError) as error:
            return [error] * len(calls)
        finally:
            if self.round_trip is not None:
                self.round_trip(time.perf_counter() - began)
        return answers

    def _source(self, call: _Call) -> Source:
        return call.script.rehearsed if self._rehearse else call.script.plain

    async def _execute(self, commands: list[tuple[_Call, str, str]]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for call, command, script in commands:
                pipeline.execute_command(command, script, 1, call.key, *call.args)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers


_Kind = TypeVar("_Kind", bound=BaseException)


def _cause(error: BaseException, kind: type[_Kind]) -> _Kind | None:
    """The first of a kind among an error and what led to it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause


def unreachable(error: Exception) -> StoreError:
    """ENGINE_UNAVAILABLE, with the system's word for it if it has one. Never the URL: it may hold a password."""
    system = _cause(error, OSError)
    reason = system.strerror if system is not None and system.strerror else type(error).__name__
    return engine_unavailable(f"the engine does not answer: {reason}")


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """Tells apart, while a store opens, an engine that refuses us for good (ValueError) and one that is away."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        if is_refusal(error):
            raise ValueError("the engine refuses the store's credentials, or one of its commands") from None
        if tls := _cause(error, ssl.SSLError):
            reason = getattr(tls, "verify_message", "") or tls.reason or "the handshake failed"
            raise ValueError(f"no TLS connection to the engine: {reason}") from None
        if isinstance(error, exceptions.OutOfMemoryError):
            raise engine_unavailable("the engine is out of memory, and the store is not set up in it yet") from error
        raise unreachable(error) from error


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Turns what a command outside of scripts meets into what `Engine.run` would raise."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise _as_store_error(error) from error


def _fail(calls: list[_Call], error: Exception) -> None:
    for call in calls:
        if not call.answer.done():
            call.answer.set_exception(_as_store_error(error))


def is_refusal(error: BaseException) -> bool:
    """Whether the engine refused our credentials. What a new connection was told comes wrapped."""
    return any(isinstance(one, _REFUSALS) for one in (error, error.__cause__))


def _is_passing(error: Exception) -> bool:
    if is_refusal(error):
        return False
    return isinstance(error, _PASSING) or _PASSING_WORDS.search(str(error)) is not None


def _as_store_error(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM " in text or "maxmemory" in text:
        return StoreError(
            job_pb2.ERROR_REASON_ENGINE_FULL, "the engine is out of memory; nothing was written", retry_after_ms=1_000
        )
    if is_refusal(error) or "NOPERM" in text:
        return engine_unavailable("the engine refuses the store's credentials or one of its commands")
    if _is_passing(error):
        return unreachable(error)
    return error
