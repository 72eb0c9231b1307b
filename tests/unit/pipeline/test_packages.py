"""Packages: what patterns match, digests, and how packages are dealt out."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest
import xxhash

from tidemill.errors import SettingError
from tidemill.pipeline import packages
from tidemill.pipeline.packages import (
    Listed,
    PackageChangedError,
    fetched,
    group,
    list_packages,
    local_path,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv", "c.json", ".hidden.csv", "_part.csv", "deep/er/d.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def names(pattern: str | Path) -> list[str]:
    return [Path(package.name).name for package in list_packages(str(pattern))]


def test_patterns(folder: Path) -> None:
    assert names(folder / "*.csv") == ["a.csv", "b.csv"]
    assert names(folder / "[bc].*") == ["b.csv", "c.json"]
    assert names(folder / "**/*.csv") == ["a.csv", "b.csv", "d.csv"]
    assert names(folder / "a.csv") == ["a.csv"]
    assert names(folder) == ["a.csv", "b.csv", "c.json"]
    assert names(folder / "deep") == []
    assert names(folder / "absent*.csv") == []


def test_a_listed_package_tells_size_and_time(folder: Path) -> None:
    os.utime(folder / "a.csv", ns=(0, 1_234_567_000))
    assert list_packages(str(folder / "a.csv")) == [Listed(str(folder / "a.csv"), 5, 1_234_567)]


def test_file_urls_and_relative_paths_name_the_same_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    plain = list_packages(str(folder / "a.csv"))
    assert list_packages(f"file://{folder}/a.csv") == plain
    assert list_packages("a.csv") == plain
    assert list_packages("./deep/../a.*") == plain
    assert local_path("file:///a/what%20is?.csv") == "/a/what is?.csv"


def test_names_with_signs_are_names(tmp_path: Path) -> None:
    odd = tmp_path / "what is [this]"
    odd.mkdir()
    (odd / "a.csv").write_text("x")
    assert names(odd) == ["a.csv"]
    assert names(odd / "a.csv") == ["a.csv"]


def test_other_places_by_url() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/p/in/a.csv": b"abc", "/p/in/b.json": b"x", "/p/in/_c.csv": b"x"})
    try:
        (package,) = list_packages("memory://p/in/*.csv")
        assert (package.name, package.size) == ("memory:///p/in/a.csv", 3)
        assert package.modified_us > 0
        assert len(list_packages("memory://p/in")) == 2
        assert list_packages("memory://absent/*") == []
        with fetched(package) as found:
            assert (found.path.name, found.path.read_bytes()) == ("a.csv", b"abc")
            assert found.digest == "xxh3:" + xxhash.xxh3_128(b"abc").hexdigest()
        assert not found.path.exists()
        memory.pipe("/p/in/a.csv", b"abcd")
        with pytest.raises(PackageChangedError), fetched(package):
            pass
        memory.rm("/p/in/a.csv")
        with pytest.raises(PackageChangedError, match="is gone"), fetched(package):
            pass
    finally:
        memory.rm("/p", recursive=True)


def test_unknown_protocols_are_told() -> None:
    with pytest.raises(SettingError, match="cannot be reached"):
        list_packages("nonsense://a/b")


def test_too_many_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "LISTED_MAX", 1)
    with pytest.raises(SettingError, match="more than 1 files"):
        list_packages(str(folder))


def test_local_files_are_read_where_they_lie(folder: Path) -> None:
    (package,) = list_packages(str(folder / "a.csv"))
    with fetched(package) as found:
        assert found.path == folder / "a.csv"
        assert found.digest == "xxh3:" + xxhash.xxh3_128(b"a.csv").hexdigest()


def test_a_file_that_changes_is_not_whole(folder: Path) -> None:
    (package,) = list_packages(str(folder / "a.csv"))
    with pytest.raises(PackageChangedError, match="changed while"), fetched(package):
        (folder / "a.csv").write_text("longer than before")
    with pytest.raises(PackageChangedError, match="changed while"), fetched(package):
        raise AssertionError("its size is not what was listed")
    (folder / "a.csv").unlink()
    with pytest.raises(PackageChangedError, match="is gone"), fetched(package):
        raise AssertionError("it is gone")


def test_groups_keep_the_order_and_lose_nothing() -> None:
    listed = [Listed(f"{n:04}", 1 << 20) for n in range(100)]
    groups = group(listed, 2)
    assert [package for part in groups for package in part] == listed
    assert 3 <= len(groups) <= 6


def test_small_packages_share_a_task_and_large_ones_do_not() -> None:
    assert len(group([Listed(str(n), 10) for n in range(100)], 8)) == 1
    huge = [Listed(str(n), 1 << 30) for n in range(3)]
    assert [len(part) for part in group(huge, 8)] == [1, 1, 1]
    many = group([Listed(f"{n}.gz", 10 << 20) for n in range(1_000)], 2)
    assert max(sum(p.weight for p in part) for part in many) < 2 * packages.TASK_WEIGHT_MAX
    assert group([], 2) == []


def test_a_task_has_a_bound_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "TASK_PACKAGES_MAX", 3)
    assert [len(part) for part in group([Listed(str(n), 0) for n in range(8)], 1)] == [3, 3, 2]
