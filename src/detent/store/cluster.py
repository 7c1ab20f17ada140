"""The files of one cluster: making them, accepting them, and the words that serve them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from detent.model.errors import StartupError
from detent.store.binaries import Binaries
from detent.store.folder import CLUSTER, SOCKET_NAME, Place
from detent.store.postmaster import launcher

ROLE = DATABASE = "detent"

SETTINGS = """\
# Written at every start. Your own settings go to postgresql.local.conf beside this file, or ALTER SYSTEM.
max_connections = 200
shared_buffers = 256MB
work_mem = 8MB
maintenance_work_mem = 128MB
max_wal_size = 2GB
checkpoint_completion_target = 0.9
wal_level = replica
jit = off
max_parallel_workers_per_gather = 0
random_page_cost = 1.1
autovacuum = on
autovacuum_naptime = 10s
fsync = on
synchronous_commit = on
unix_socket_permissions = 0700
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
log_line_prefix = '%m [%p] '
lc_messages = 'C'
include_if_exists = 'postgresql.local.conf'
"""


def command(place: Place, binaries: Binaries) -> list[str]:
    sockets = place.sockets
    place.private_folder(sockets)
    # The folder is ours alone and no server is alive: what lies there is stale, whoever's number it names.
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
        (sockets / name).unlink(missing_ok=True)
    config = place.home / "postgresql.conf"
    fresh = config.with_suffix(".conf.new")
    fresh.write_text(SETTINGS)
    fresh.chmod(0o644)
    fresh.replace(config)
    forced = {"config_file": config, "listen_addresses": "", "unix_socket_directories": sockets, "port": 5432}
    words = [word for name, value in forced.items() for word in ("-c", f"{name}={value}")]
    return [str(binaries.postgres), "-D", str(place.cluster), *words]


def make_cluster(place: Place, binaries: Binaries) -> None:
    """Accept the cluster that is there, or make one and give it its name when it is whole."""
    cluster = place.cluster
    for rubbish in place.home.glob(f"{CLUSTER}.new-*"):
        shutil.rmtree(rubbish, ignore_errors=True)
    if cluster.is_dir() and any(cluster.iterdir()):
        _check_cluster(cluster, binaries)
        return
    fresh = place.home / f"{CLUSTER}.new-{secrets.token_hex(4)}"
    place.private_folder(fresh)
    try:
        options = ["--locale=C", "-E", "UTF8", "-U", ROLE, "--no-instructions"]
        options += ["--auth-local=trust", "--auth-host=reject"]
        _run(place, [str(binaries.initdb), "-D", str(fresh), *options], "")
        single = [str(binaries.postgres), "--single", "-D", str(fresh), "template1"]
        _run(place, single, f"create database {DATABASE}\n")
        if cluster.is_dir():
            cluster.rmdir()
        fresh.rename(cluster)
        _sync(place.home)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _check_cluster(cluster: Path, binaries: Binaries) -> None:
    try:
        version = (cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        version = ""
    if not version or not (cluster / "global" / "pg_control").is_file():
        raise StartupError(
            f"{cluster} is not a PostgreSQL cluster and not empty: name another folder with --data"
        )
    if version != binaries.major:
        raise StartupError(
            f"{cluster} is a cluster of PostgreSQL {version}, and this program brings {binaries.major}: "
            "dump it with the old version and restore it, or name another folder with --data"
        )


def _run(place: Place, command: list[str], given: str) -> None:
    # Killed with us: a half-made cluster has a name that the next start throws away.
    words = [*launcher(place.user, signal.SIGKILL), *command]
    done = subprocess.run(words, input=given, capture_output=True, text=True, errors="replace")
    # The single-user server reports an error and ends well all the same.
    bad = [
        line for line in done.stderr.splitlines() if "rror:" in line or "ERROR:" in line or "FATAL:" in line
    ]
    if done.returncode != 0 or bad:
        why = bad[0] if bad else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if "No space left" in done.stderr:
            why = "no space is left on its device"
        raise StartupError(f"cannot make a database in {place.data}: {why.strip()}")


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
