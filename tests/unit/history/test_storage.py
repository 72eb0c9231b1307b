"""Storage: local folders and URLs behave alike."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from history_kit import HOUR_US, NOW_US, make_batch, make_table, write
from scans import scan_sql

from tidemill.errors import SettingError
from tidemill.history.storage import Storage


@pytest.fixture(params=["folder", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "memory":
        yield Storage("memory://warehouse/history files")
        fsspec.filesystem("memory").store.clear()
        fsspec.filesystem("memory").pseudo_dirs[:] = [""]
    else:
        folder = tmp_path / "history files"
        yield Storage(str(folder) if request.param == "folder" else folder.as_uri())


def test_files_are_written_and_read(place: Storage) -> None:
    table = make_table([("k", "BIGINT"), ("h", "HUGEINT")], [("k",)])
    rows = [(NOW_US + at * HOUR_US // 2, at, 2**90 + at) for at in range(4)]
    files = write(place, table, make_batch(table, rows))
    assert [file.rows for file in files] == [2, 2]
    with pickle.loads(pickle.dumps(place)).connect() as duck:
        scan = scan_sql(place, table, files, columns=["k", "h"])
        assert duck.execute(f"SELECT k, h FROM ({scan}) ORDER BY k").fetchall() == [
            (at, 2**90 + at) for at in range(4)
        ]
        place.prepare(duck)  # once more does no harm


def test_files_are_listed_and_deleted(place: Storage) -> None:
    assert list(place.list("")) == []
    table = make_table([("k", "BIGINT")])
    files = write(place, table, make_batch(table, [(NOW_US, 1), (NOW_US + HOUR_US, 2)]))
    listed = {path: size for path, size, changed in place.list("1") if changed > 0}
    assert listed == {file.path: file.bytes for file in files}
    assert {path for path, *_ in place.list()} == set(listed)
    assert list(place.list("2")) == []
    place.delete(files[0].path)
    place.delete(files[0].path)
    place.delete("9/nothing/here.parquet")
    assert [path for path, *_ in place.list("")] == [files[1].path]


def test_a_deleted_file_takes_its_empty_folder_along(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.make_folder("1/a")
    for name in ("x", "y"):
        (tmp_path / "1/a" / name).touch()
    storage.delete("1/a/x")
    assert (tmp_path / "1/a/y").exists()
    storage.delete("1/a/y")
    assert not (tmp_path / "1/a").exists()


def test_files_and_folders_are_forced_to_disk(tmp_path: Path, synced: list[str]) -> None:
    storage = Storage(str(tmp_path))
    table = make_table([("k", "BIGINT")])
    files = write(storage, table, make_batch(table, [(NOW_US, 1), (NOW_US + HOUR_US, 2)]))
    paths = [file.path for file in files]
    folders = [str(Path(path).parent) for path in paths]
    wanted = [*paths, *sorted(folders, reverse=True), "1", "."]
    assert synced == [f"{tmp_path}/{path}" for path in wanted]


def test_places() -> None:
    assert Storage("/data/").place("1/a") == "/data/1/a"
    assert Storage("/").place("1/a") == "/1/a"
    assert Storage("file:///da%20ta").place("1/a") == "/da ta/1/a"
    assert Storage("s3://bucket/x/").place("1/a") == "s3://bucket/x/1/a"
    assert Storage("/a*[b]?").pattern("1/a") == "/a[*][[]b][?]/1/a"


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(SettingError, match="neither an absolute folder nor a URL"):
        Storage("data/history")


def test_an_unknown_protocol_says_what_to_install() -> None:
    with pytest.raises(SettingError, match="cannot be reached"):
        Storage("nosuch://x").make_folder("1")
