"""Which addresses a callback may reach, and that no way of writing or resolving one gets around it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from detent.finish.addresses import (
    AddressRefused,
    CallbackResolver,
    LookUp,
    checked_socket,
    connector,
    look_up,
    refusal_of,
    target_of,
)

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.1", "168.63.129.17", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.167.255.255",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2001:4860:4860::8888",
    "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
]  # fmt: skip

REFUSED = {
    "0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
    "127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
    "10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
    "100.64.0.1": "private", "100.100.100.200": "private", "198.18.0.1": "private",
    "fd00:ec2::254": "private",
    "169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
    "168.63.129.16": "cloud",
    "224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast",
    "240.0.0.1": "reserved", "255.255.255.255": "reserved", "192.0.0.192": "reserved",
    "192.0.2.1": "reserved",
    "203.0.113.9": "reserved", "2001:db8::1": "reserved", "3fff::1": "reserved", "fec0::1": "reserved",
    "64:ff9b:1::10.0.0.1": "reserved", "100::1": "reserved", "4000::1": "reserved",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "reserved",
    "::127.0.0.1": "reserved", "::ffff:0:127.0.0.1": "reserved",
    "::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:a9fe:a9fe": "link-local",
    "64:ff9b::127.0.0.1": "loopback", "64:ff9b::c0a8:101": "private",
    "64:ff9b::169.254.169.254": "link-local",
    "2002:7f00:1::1": "loopback", "2002:a00:1::1": "private", "2002:e000:1::": "multicast",
    "2130706433": "unreadable", "127.1": "unreadable", "0x7f.0.0.1": "unreadable", "0177.0.0.1": "unreadable",
    "localhost": "unreadable", "": "unreadable",
}  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_called(address: str) -> None:
    assert refusal_of(address) is None


@pytest.mark.parametrize(("address", "meaning"), REFUSED.items())
def test_any_other_address_is_refused_with_what_it_is(address: str, meaning: str) -> None:
    assert meaning in (refusal_of(address) or "")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.org/", "no http or https"),
        ("file:///etc/passwd", "no http or https"),
        ("example.org/done", "no http or https"),
        ("http:///done", "cannot be read|no http or https"),
        ("https://me@example.org/", "user name or password"),
        ("https://me:secret@example.org/", "user name or password"),
        ("https://:secret@example.org/", "user name or password"),
        ("http://1.1.1.1@10.0.0.1/", "user name or password"),
        ("http://[::1/", "cannot be read"),
        ("http://example.org:99999/", "cannot be read"),
    ],
)
def test_a_url_of_another_kind_is_refused(url: str, reason: str) -> None:
    with pytest.raises(AddressRefused, match=reason) as refused:
        target_of(url)
    assert "secret" not in str(refused.value)


def test_an_http_url_is_a_target() -> None:
    assert str(target_of("https://example.org:8443/done?x=1")) == "https://example.org:8443/done?x=1"


def test_no_socket_is_made_for_a_refused_address() -> None:
    with pytest.raises(AddressRefused, match=r"127\.0\.0\.1 is a loopback address.*allow_private_callbacks"):
        checked_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    with checked_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.1.1.1", 80))) as made:
        assert made.family == socket.AF_INET


def answering(*addresses: str) -> LookUp:
    async def look_up(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (a, port, 0, 0))
            if ":" in a
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port))
            for a in addresses
        ]

    return look_up


async def test_a_name_resolves_to_its_public_addresses_alone() -> None:
    mixed = answering("10.0.0.1", "1.1.1.1", "::1", "2606:4700::1")
    resolver = CallbackResolver(allow_private=False, look_up=mixed)
    assert [one["host"] for one in await resolver.resolve("example.org", 80)] == ["1.1.1.1", "2606:4700::1"]


async def test_a_name_with_private_addresses_alone_is_refused_by_name() -> None:
    resolver = CallbackResolver(allow_private=False, look_up=answering("10.0.0.1", "::ffff:127.0.0.1"))
    with pytest.raises(AddressRefused, match=r"refused: db\.internal is ::ffff:127\.0\.0\.1, a loopback"):
        await resolver.resolve("db.internal", 80)


async def test_private_addresses_resolve_where_they_are_allowed() -> None:
    resolver = CallbackResolver(allow_private=True, look_up=answering("10.0.0.1"))
    assert [one["host"] for one in await resolver.resolve("db.internal", 80)] == ["10.0.0.1"]


async def test_an_unknown_name_is_an_ordinary_failure() -> None:
    with pytest.raises(OSError):
        await look_up("no-such-name.invalid", 80, socket.AF_UNSPEC)
    with pytest.raises(OSError, match="has no address"):
        await CallbackResolver(allow_private=False, look_up=answering()).resolve("empty.example", 80)


@pytest.fixture
async def heard(unused_port: socket.socket) -> AsyncIterator[list[str]]:
    """What a server on a loopback port was asked for."""
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response()

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.SockSite(runner, unused_port).start()
    yield paths
    await runner.cleanup()


@pytest.fixture
def unused_port() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "0.0.0.0", "[::ffff:7f00:1]"]
)
async def test_no_spelling_of_this_machine_is_reached(
    heard: list[str], unused_port: socket.socket, host: str
) -> None:
    url = f"http://{host}:{unused_port.getsockname()[1]}/"
    async with aiohttp.ClientSession(connector=connector(allow_private=False, limit=1)) as session:
        with pytest.raises(AddressRefused):
            await session.post(url)
    assert heard == []


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f.1", "0177.0.0.1", "0"])
async def test_no_number_that_the_system_would_read_is_reached(
    heard: list[str], unused_port: socket.socket, host: str
) -> None:
    url = f"http://{host}:{unused_port.getsockname()[1]}/"
    async with aiohttp.ClientSession(connector=connector(allow_private=False, limit=1)) as session:
        with pytest.raises((AddressRefused, aiohttp.InvalidURL)):
            await session.post(url)
    assert heard == []


async def test_a_name_that_changes_its_answer_after_the_check_is_not_reached(
    heard: list[str], unused_port: socket.socket
) -> None:
    # The resolver is one that lets everything pass: what is left is the check of the address connected to.
    fooled = CallbackResolver(allow_private=True, look_up=answering("127.0.0.1"))
    gate = aiohttp.TCPConnector(resolver=fooled, socket_factory=checked_socket)
    async with aiohttp.ClientSession(connector=gate) as session:
        with pytest.raises(AddressRefused):
            await session.post(f"http://rebound.example:{unused_port.getsockname()[1]}/")
    assert heard == []


async def test_this_machine_is_reached_where_it_is_allowed(
    heard: list[str], unused_port: socket.socket
) -> None:
    url = f"http://127.0.0.1:{unused_port.getsockname()[1]}/here"
    async with (
        aiohttp.ClientSession(connector=connector(allow_private=True, limit=1)) as session,
        session.post(url) as answer,
    ):
        assert answer.status == 200
    assert heard == ["/here"]
