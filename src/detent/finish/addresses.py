"""Which addresses a callback may reach.

A job's author names the callback's address, and the keeper that calls it stands inside the operator's
network: without a check, anyone who may create a job could knock on the database, on a cloud's metadata
service, or on this very machine. So only the public internet is reachable, unless the operator says
otherwise.

A name proves nothing: it may answer with a public address when it is looked at and with a private one when
it is connected to. What is checked is therefore the address that the socket is made for, at the moment it
is made, in `checked_socket`, which every connection passes, also one to an address written out in the URL.
The resolver leaves out refused addresses before that, for a name that has good ones too and for a reason
that names the name. Redirects are not followed by the caller; nothing here trusts the environment's proxies.

Public means: IPv4 outside of the blocks below; IPv6 in 2000::/3, the only block given out, outside of the
blocks below. IPv6 that carries an IPv4 address is judged by that one. A NAT64 prefix of a network's own looks
like any public address and cannot be known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from aiohttp import AddrInfoType, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from detent.model.errors import DetentError

_BLOCKS_4 = [
    (IPv4Network(block), meaning)
    for block, meaning in (
        ("0.0.0.0/8", "an unspecified"),
        ("10.0.0.0/8", "a private"),
        ("100.64.0.0/10", "a private (carrier's)"),
        ("127.0.0.0/8", "a loopback"),
        ("168.63.129.16/32", "a cloud host's"),  # public by number, but it answers only inside of Azure
        ("169.254.0.0/16", "a link-local"),
        ("172.16.0.0/12", "a private"),
        ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a reserved"),
        ("192.88.99.0/24", "a reserved"),
        ("192.168.0.0/16", "a private"),
        ("198.18.0.0/15", "a private (benchmark)"),
        ("198.51.100.0/24", "a reserved"),
        ("203.0.113.0/24", "a reserved"),
        ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
    )
]
_PUBLIC_6 = IPv6Network("2000::/3")
_BLOCKS_6 = [
    (IPv6Network(block), meaning)
    for block, meaning in (
        ("::/128", "an unspecified"),
        ("::1/128", "a loopback"),
        ("fc00::/7", "a private"),
        ("fe80::/10", "a link-local"),
        ("ff00::/8", "a multicast"),
        ("2001::/23", "a reserved"),  # also Teredo, which carries an IPv4 address of anyone's choice
        ("2001:db8::/32", "a reserved"),
        ("3fff::/20", "a reserved"),
    )
]
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")

ADVICE = "the setting allow_private_callbacks permits it"

LookUp = Callable[[str, int, int], Awaitable[Sequence[tuple[Any, ...]]]]


class AddressRefused(DetentError):
    """A callback's address is one that must not be called."""

    code = "address_refused"


def target_of(url: str) -> URL:
    """The URL as the client reads it, if it is one that may be asked at all."""
    try:
        target = URL(url)
    except ValueError as error:
        raise AddressRefused(f"refused: the callback_url cannot be read ({error})") from None
    if target.scheme not in ("http", "https") or not target.host:
        raise AddressRefused("refused: the callback_url is no http or https address")
    if target.raw_user is not None or target.raw_password is not None:
        raise AddressRefused("refused: the callback_url has a user name or password")
    return target


def refusal_of(address: str) -> str | None:
    """What keeps an address from being called, such as 'a loopback'; None if nothing does."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return "an unreadable"  # what we cannot read, the system might
    return _refusal_4(ip) if isinstance(ip, IPv4Address) else _refusal_6(ip)


def _refusal_4(ip: IPv4Address) -> str | None:
    return next((meaning for block, meaning in _BLOCKS_4 if ip in block), None)


def _refusal_6(ip: IPv6Address) -> str | None:
    if ip in _MAPPED or ip in _NAT64:
        return _refusal_4(IPv4Address(ip.packed[12:]))
    if ip in _6TO4:
        return _refusal_4(IPv4Address(ip.packed[2:6]))
    for block, meaning in _BLOCKS_6:
        if ip in block:
            return meaning
    return None if ip in _PUBLIC_6 else "a reserved"


def checked_socket(info: AddrInfoType) -> socket.socket:
    """The socket for one connection, made only if the address it will connect to may be called."""
    family, kind, protocol, _, address = info
    host = str(address[0])
    refusal = refusal_of(host)
    if refusal is not None:
        raise AddressRefused(f"refused: {host} is {refusal} address; {ADVICE}")
    return socket.socket(family, kind, protocol)


def _unknown(why: str) -> OSError:
    return socket.gaierror(socket.EAI_NONAME, why)  # with a number, without which the client drops the text


async def look_up(host: str, port: int, family: int) -> Sequence[tuple[Any, ...]]:
    """`getaddrinfo` on a thread of its own.

    A pool of threads would let a few names whose servers are silent hold up everyone else's, and a thread
    that is no daemon would hold up this process's end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[tuple[Any, ...]]] = loop.create_future()

    def tell(found: Sequence[tuple[Any, ...]], error: Exception | None) -> None:
        if answer.done():
            return  # nobody waits any more
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def work() -> None:
        found: Sequence[tuple[Any, ...]] = ()
        failure: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = error if isinstance(error, OSError) else _unknown(f"{host!r} is no name: {error}")
        with contextlib.suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=work, name="callback look-up", daemon=True).start()
    return await answer


class CallbackResolver(AbstractResolver):
    """Names to addresses, without those that must not be called unless they are allowed."""

    def __init__(self, *, allow_private: bool, look_up: LookUp = look_up) -> None:
        self._allow_private = allow_private
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found: list[ResolveResult] = []
        refused: str | None = None
        for kind, _, protocol, _, address in await self._look_up(host, port, family):
            # A scope names an interface of this machine, so what has one is not public anyway.
            text = f"{address[0]}%{address[3]}" if len(address) > 3 and address[3] else str(address[0])
            refusal = None if self._allow_private else refusal_of(text)
            if refusal is None:
                found.append(
                    ResolveResult(
                        hostname=host, host=text, port=port, family=kind, proto=protocol,
                        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                    )
                )  # fmt: skip
            else:
                refused = f"refused: {host} is {text}, {refusal} address; {ADVICE}"
        if not found and refused is not None:
            raise AddressRefused(refused)
        if not found:
            raise _unknown(f"{host} has no address")
        return found

    async def close(self) -> None:
        """Nothing is kept open between look-ups."""


def connector(*, allow_private: bool, limit: int, look_up: LookUp = look_up) -> TCPConnector:
    """Connections for callbacks, each to an address that was checked, none used twice.

    A connection that waits for its next use may be closed by the other side just as it is used again, and
    then nobody knows whether the callback arrived.
    """
    return TCPConnector(
        limit=limit,
        force_close=True,
        use_dns_cache=False,
        resolver=CallbackResolver(allow_private=allow_private, look_up=look_up),
        socket_factory=None if allow_private else checked_socket,
    )
