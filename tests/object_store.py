"""An object store for tests: a server that speaks S3, in this process, on a free port.

Whoever uses it (s3fs, deltalake, Polars) finds it by the environment, as with any other S3, so the
environment is changed while the server runs and put back when it stops.
"""

from __future__ import annotations

import itertools
import logging
import os
from urllib.parse import quote

import fsspec
import s3fs
from moto.server import ThreadedMotoServer

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # else deltalake asks the cloud that is not there
}
_REMOVED = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3")
_REQUESTS = logging.getLogger("werkzeug")


class ObjectStore:
    """One server; ``new_root`` gives a place in a bucket of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._level = _REQUESTS.level
        _REQUESTS.setLevel(logging.ERROR)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        changed = {**_ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}
        self._before = {name: os.environ.get(name) for name in (*changed, *_REMOVED)}
        os.environ.update(changed)
        for name in _REMOVED:
            os.environ.pop(name, None)

    def new_root(self, folder: str = "warehouse") -> str:
        """The URL of an empty folder in a new bucket."""
        bucket = f"bucket-{next(self._numbers)}"
        fsspec.filesystem("s3").mkdir(bucket)
        return f"s3://{bucket}/{quote(folder)}"

    def stop(self) -> None:
        s3fs.S3FileSystem.clear_instance_cache()
        self._server.stop()
        _REQUESTS.setLevel(self._level)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
