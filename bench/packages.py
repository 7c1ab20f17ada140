"""Programs that are no Python packages: taken where they are, installed where that is allowed."""

from __future__ import annotations

import asyncio
import os
import shutil

from bench.step import Skipped

INSTALL_SECONDS = 180.0
_turn = asyncio.Lock()


async def debian_program(program: str, package: str) -> str:
    """Where a program is. As root on Debian it is installed first if need be, without starting any service."""
    async with _turn:
        if found := shutil.which(program):
            return found
        if os.getuid() != 0 or not shutil.which("apt-get"):
            raise Skipped(f"{program} is not installed, and only root on Debian can install it here")
        for words in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", package)):
            await finish("apt-get", *words, env={"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"})
    if found := shutil.which(program):
        return found
    raise Skipped(f"{package} was installed and brought no {program}")


async def finish(*words: str, env: dict[str, str] | None = None, cwd: str | None = None) -> None:
    """Run a program of an installation to its end; what fails leaves its figures out, with the reason."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, cwd=cwd, env={**os.environ, **(env or {})},
    )  # fmt: skip
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            output, _ = await process.communicate()
    except BaseException as error:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            raise Skipped(f"{words[0]} did not end within {INSTALL_SECONDS:g} s") from None
        raise
    if process.returncode:
        last = (output.decode(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise Skipped(f"{words[0].rpartition('/')[2]} {' '.join(words[1:4])} failed: {last[:200]}")
