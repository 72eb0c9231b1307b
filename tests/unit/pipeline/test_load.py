"""Loading packages: what arrives, what is set aside, and that nothing arrives twice."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline_kit import (
    NONE,
    TIMEOUT_S,
    FakeEnvironment,
    Warehouse,
    hour,
    make_table,
    put,
    put_bytes,
)

from tidemill.catalog.commits import SeqRange
from tidemill.catalog.model import FILE_DELETES, FILE_REJECTED, FILE_ROWS, NewFile
from tidemill.errors import (
    DuplicateKeyError,
    FileFormatError,
    RowsRejectedError,
    SettingError,
    TidemillError,
    UnknownNameError,
)
from tidemill.pipeline import loading
from tidemill.pipeline.executor import PipelineError
from tidemill.pipeline.load import Load
from tidemill.pipeline.loading import PACKAGE_ROWS_MAX
from tidemill.pipeline.packages import Listed, list_packages
from tidemill.stream.keys import KeyConflicts

DIVERT = {"rejected": "divert"}
KEY = ("k", "ts")


@pytest.fixture
def box(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def tidy(warehouse: Warehouse) -> bool:
    """Whether storage holds the committed files and nothing else."""
    return warehouse.on_disk() == {file.path for file in warehouse.environment.files}


# -- what arrives


def test_packages_are_collated_into_partitions(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv.gz", [(hour(1), 1, 0.5, "x"), (hour(2), 2, 1.5, "y")])
    put(box, "b.csv", [(hour(1, 5), 3, 2.5, "z")])
    report = warehouse.load(make_table(), box / "*")
    assert (report.rows, report.rejected, report.explain()) == (3, 0, "packages: 2 loaded")
    assert warehouse.rows() == [
        (hour(1), 1, 0.5, "x"),
        (hour(1, 5), 3, 2.5, "z"),
        (hour(2), 2, 1.5, "y"),
    ]
    (commit,) = warehouse.environment.commits
    assert [(file.kind, file.rows, file.origin) for file in commit.files] == [
        (FILE_ROWS, 2, "load"),
        (FILE_ROWS, 1, "load"),
    ]
    assert commit.reserved == SeqRange(1_000, 1_000 + 2 * PACKAGE_ROWS_MAX - 1)
    assert warehouse.rows("_seq") == [(1_000,), (1_000 + PACKAGE_ROWS_MAX,), (1_001,)]
    first = report.packages[0]
    assert first.span_us == (1_704_070_800_000_000, 1_704_074_400_000_000)
    assert tidy(warehouse)


def test_what_is_recorded_of_a_package(warehouse: Warehouse, box: Path) -> None:
    path = put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    report = warehouse.load(make_table(), path, source="feed")
    (package,) = warehouse.environment.packages
    assert (package.name, package.size, package.rows, package.late, package.rejected) == (
        str(path),
        path.stat().st_size,
        1,
        0,
        0,
    )
    assert (package.state, package.reason, package.source) == ("loaded", None, "feed")
    assert (package.job_id, package.loaded_at_us) == (report.job_id, warehouse.clock.now_us())
    (record,) = warehouse.pipeline.board.records()
    assert (record.kind, record.rows, record.files, record.tasks) == ("load", 1, 1, 1)
    assert record.bytes == package.size


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet", "json"])
def test_forms(warehouse: Warehouse, box: Path, form: str) -> None:
    moment = dt.datetime(2024, 1, 1, 1)
    if form == "parquet":
        table = pa.table({"ts": [moment], "k": [1], "s": ["x"]})
        pq.write_table(table, box / "a.parquet")
    elif form == "csv":
        put(box, "a.csv.gz", [(hour(1), 1, "x")], header="ts,k,s")
    else:
        line = json.dumps({"ts": hour(1), "k": 1, "s": "x"})
        put_bytes(box / f"a.{form}", f"[{line}]".encode() if form == "json" else line.encode())
    warehouse.load(make_table(), box / "a.*", form=form)
    assert warehouse.rows() == [(hour(1), 1, 0.5, "x")]  # v is its DEFAULT


def test_zstd_and_options_and_columns(warehouse: Warehouse, box: Path) -> None:
    content = f"{hour(1)};1\n".encode()
    (box / "a.csv.zst").write_bytes(pa.Codec("zstd").compress(content, asbytes=True))
    options = {"header": "false", "delimiter": ";"}
    warehouse.load(make_table(), box / "*", columns=("ts", "k"), options=options)
    assert warehouse.rows("ts::VARCHAR, k") == [(hour(1), 1)]


def test_packages_of_other_places(warehouse: Warehouse) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/load/a.csv", f"ts,k\n{hour(1)},1\n".encode())
    try:
        warehouse.load(make_table(), "memory://load/*.csv")
    finally:
        memory.rm("/load", recursive=True)
    assert warehouse.rows("k") == [(1,)]
    assert warehouse.environment.packages[0].name == "memory:///load/a.csv"


def test_spellings_that_only_the_second_reading_takes(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), " 1", 0.5, "x"), (hour(1), 2, "1e400", "x")][:1])
    warehouse.load(make_table(), box / "*")
    assert warehouse.rows("k, v") == [(1, 0.5)]


def test_empty_packages_are_loaded_too(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [])
    put_bytes(box / "b.csv", b"")
    report = warehouse.load(make_table(), box / "*")
    assert (report.rows, report.explain()) == (0, "packages: 2 loaded")
    assert warehouse.environment.commits[0].reserved is None
    assert warehouse.environment.files == []


def test_nothing_to_load_commits_nothing(warehouse: Warehouse, box: Path) -> None:
    report = warehouse.load(make_table(), box / "*")
    assert (report.packages, warehouse.environment.commits) == ((), [])
    assert report.explain() == "packages: none"


def test_a_package_larger_than_the_shelf(
    warehouse: Warehouse, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SHELF_BYTES_MAX", 100)
    for name in "abc":
        put(box, f"{name}.csv", [(hour(1, second), second, 0.5, name) for second in range(9)])
    report = warehouse.load(make_table(), box / "*")
    assert (report.rows, len(warehouse.rows())) == (27, 27)
    assert len(warehouse.environment.files) == 3
    assert tidy(warehouse)


# -- what does not


def bad_packages(box: Path) -> dict[str, str]:
    """Packages that cannot be loaded, and a word of the reason of each."""
    good = [(hour(1), 1, 0.5, "x")] * 2_000
    put(box, "header.csv", good, header="ts,k,v,other")
    put(box, "value.csv", [(hour(1), 1, 0.5, "x"), (hour(1), "one", 0.5, "x")])
    put(box, "null.csv", [("", 1, 0.5, "x")])
    put(box, "width.csv", [(hour(1), 1, 0.5, "x"), (hour(1), 1)])
    put(box, "binary.csv", [(hour(1), 1, 0.5, "x")]).write_bytes(b"ts,k\n\xff\xfe,\x00\x80\n")
    whole = put(box, "cut.csv.gz", good).read_bytes()
    (box / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    (box / "no.csv.gz").write_bytes(b"this was never compressed")
    (box / "no.csv.zst").write_bytes(b"this was never compressed")
    return {
        "header.csv": 'no column "other"',
        "value.csv": "'one'",
        "null.csv": '"ts" is NULL',
        "width.csv": "2 values, not 4",
        "binary.csv": "invalid UTF8",
        "cut.csv.gz": "cannot read",
        "no.csv.gz": "cannot read",
        "no.csv.zst": "cannot read",
    }


def test_bad_packages_of_a_source_are_set_aside(warehouse: Warehouse, box: Path) -> None:
    reasons = bad_packages(box)
    put(box, "good.csv", [(hour(1), 7, 0.5, "x")])
    report = warehouse.load(make_table(), box / "*", source="feed")
    assert report.explain() == f"packages: 1 loaded, {len(reasons)} set aside"
    assert warehouse.rows("k") == [(7,)]
    assert warehouse.environment.states() == {
        **dict.fromkeys(reasons, "set_aside"),
        "good.csv": "loaded",
    }
    for package in warehouse.environment.packages:
        if package.state == "set_aside":
            assert reasons[Path(package.name).name] in str(package.reason)
            assert (package.rows, package.rejected) == (0, 0)
    assert tidy(warehouse)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("header.csv", UnknownNameError),
        ("value.csv", RowsRejectedError),
        ("cut.csv.gz", FileFormatError),
    ],
)
def test_a_bad_package_fails_copy(
    warehouse: Warehouse, box: Path, name: str, kind: type[TidemillError]
) -> None:
    bad_packages(box)
    for path in box.iterdir():
        if path.name != name:
            path.unlink()
    put(box, "a.csv", [(hour(1), 7, 0.5, "x")])
    handle = warehouse.submit(make_table(), box / "*")
    with pytest.raises(kind) as caught:
        handle.wait(TIMEOUT_S)
    assert name in caught.value.message
    assert (warehouse.environment.commits, warehouse.on_disk()) == ([], set())
    assert warehouse.pipeline.board.records()[0].state == "failed"


def test_rejected_rows_go_aside_where_the_table_says_so(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "x"), (hour(1), "one", 0.5, "y"), (hour(1), 3)])
    put(box, "b.csv", [("never", 4, 0.5, "z")])
    report = warehouse.load(make_table(DIVERT), box / "*")
    assert (report.rows, report.rejected) == (1, 3)
    assert warehouse.rows("k") == [(1,)]
    assert [(package.rows, package.rejected) for package in warehouse.environment.packages] == [
        (1, 2),
        (0, 1),
    ]
    assert {file.kind for file in warehouse.environment.files} == {FILE_ROWS, FILE_REJECTED}
    reasons = [reason for _, reason in warehouse.rejected()]
    assert len(reasons) == 3
    assert any("'one'" in reason for reason in reasons)
    assert any("2 values, not 4" in reason for reason in reasons)
    assert tidy(warehouse)


def test_a_large_package_that_ends_badly_leaves_nothing(
    warehouse: Warehouse, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SHELF_BYTES_MAX", 1_000_000)
    rows = [(hour(n % 3), n, 0.5, "x" * 50) for n in range(120_000)]
    put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    put(box, "b.csv", [*rows, (hour(1), "one", 0.5, "x")])
    report = warehouse.load(make_table(), box / "*", source="feed")
    assert [package.state for package in report.packages] == ["loaded", "set_aside"]
    assert len(warehouse.rows()) == 1
    assert tidy(warehouse)


def test_a_package_has_a_bound_of_rows(
    warehouse: Warehouse, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PACKAGE_ROWS_MAX", 2)
    put(box, "a.csv", [(hour(1), n, 0.5, "x") for n in range(3)])
    with pytest.raises(FileFormatError, match="more than 2 rows"):
        warehouse.load(make_table(), box / "*")


def test_a_wrong_option_is_nobodys_package(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    with pytest.raises(SettingError):
        warehouse.load(make_table(), box / "*", options={"colour": "red"}, source="feed")
    assert warehouse.environment.packages == []


def test_what_changed_or_went_away_is_left_for_later(warehouse: Warehouse, box: Path) -> None:
    path = put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    listed = [Listed(str(path), 3), Listed(str(box / "gone.csv"), 3)]
    job = warehouse.job(make_table(), listed, source="feed")
    report = warehouse.pipeline.submit(job).wait(TIMEOUT_S).value
    assert report.explain() == "packages: 2 still changing"
    assert (warehouse.environment.commits, warehouse.environment.packages) == ([], [])
    strict = warehouse.pipeline.submit(warehouse.job(make_table(), listed))
    with pytest.raises(FileFormatError, match="changed while it was read"):
        strict.wait(TIMEOUT_S)


# -- exactly once


def test_a_package_is_loaded_once(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    warehouse.load(make_table(), box / "*")
    put(box, "b.csv", [(hour(1), 2, 0.5, "x")])
    report = warehouse.load(make_table(), box / "*")
    assert report.explain() == "packages: 1 loaded, 1 known already"
    assert warehouse.rows("k") == [(1,), (2,)]
    assert warehouse.load(make_table(), box / "*").count("known") == 2
    assert len(warehouse.environment.commits) == 2
    assert tidy(warehouse)


def test_a_package_that_changed_after_it_was_loaded(warehouse: Warehouse, box: Path) -> None:
    path = put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    warehouse.load(make_table(), path, source="feed")
    put(box, "a.csv", [(hour(1), 2, 0.5, "x")])  # of the same size
    report = warehouse.load(make_table(), path, source="feed")
    assert report.explain() == "packages: 1 set aside"
    assert "changed after it was loaded" in str(report.packages[0].reason)
    assert [package.state for package in warehouse.environment.packages] == ["loaded", "set_aside"]
    with pytest.raises(FileFormatError, match="changed after it was loaded"):
        warehouse.load(make_table(), path)
    put(box, "a.csv", [(hour(1), 1, 0.5, "x")])  # as it was
    assert warehouse.load(make_table(), path).explain() == "packages: 1 known already"
    assert warehouse.rows("k") == [(1,)]


def test_a_package_set_aside_may_be_tried_again(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), "one", 0.5, "x")])
    warehouse.load(make_table(), box / "*", source="feed")
    assert warehouse.environment.states() == {"a.csv": "set_aside"}
    warehouse.load(make_table(DIVERT), box / "*", source="feed")
    assert warehouse.environment.states() == {"a.csv": "loaded"}


def test_two_loads_of_a_package_at_once(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "x")])
    table, listed = make_table(), list_packages(str(box))
    job = warehouse.job(table, listed)
    slower = warehouse.job(table, listed)
    context = _Context()
    ran = slower.run(context)  # type: ignore[arg-type]
    warehouse.pipeline.submit(job).wait(TIMEOUT_S)
    with pytest.raises(PipelineError, match="loaded by another job meanwhile"):
        ran.commit()
    assert warehouse.rows("k") == [(1,)]
    assert tidy(warehouse)


class _Context:
    """Runs tasks here and now."""

    job_id = "slower"
    executor = type("Executor", (), {"parallelism": 1})

    def tell(self, _detail: str) -> None: ...

    def count(self, rows: int = 0, bytes: int = 0) -> None: ...

    def run_tasks(
        self, _name: str, function: object, specs: Sequence[object], _done: object
    ) -> list[object]:
        return [function(spec) for spec in specs]  # type: ignore[operator]


def test_a_commit_that_fails_leaves_orphans_and_can_be_repeated(
    warehouse: Warehouse, box: Path
) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "x")])

    def fail() -> None:
        raise PipelineError("the catalog is away")

    warehouse.environment.before_commit = fail
    with pytest.raises(PipelineError, match="the catalog is away"):
        warehouse.load(make_table(), box / "*")
    warehouse.environment.before_commit = lambda: None
    warehouse.load(make_table(), box / "*")
    assert warehouse.rows("k") == [(1,)]
    assert warehouse.on_disk() > {file.path for file in warehouse.environment.files}


# -- primary keys


def keys_of(warehouse: Warehouse, existing: dict[int, int]) -> FakeEnvironment:
    """Let the desk compare keys as the engine does; ``existing`` maps k to a _seq."""

    def compare(files: Sequence[NewFile]) -> KeyConflicts:
        paths = [warehouse.storage.place(file.path) for file in files]
        with warehouse.storage.connect() as connection:
            query = f"SELECT k, _seq, epoch_us(ts) FROM read_parquet({paths!r}) ORDER BY k, _seq"
            rows = connection.sql(query).fetchall()
        last, found = dict(existing), []
        for key, seq, time_us in rows:
            if key in last:
                found.append((seq, last[key], time_us))
            last[key] = seq
        columns = zip(*found, strict=True) if found else ([], [], [])
        return KeyConflicts(*(np.array(column, np.int64) for column in columns))

    warehouse.environment.conflicts = compare
    return warehouse.environment


def put_keys(box: Path) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "a"), (hour(1), 2, 0.5, "a")])
    put(box, "b.csv", [(hour(1), 2, 0.5, "b"), (hour(1), 3, 0.5, "b")])
    put(box, "c.csv", [(hour(1), 3, 0.5, "c"), (hour(1), 4, 0.5, "c")])


def test_packages_with_keys_that_exist_are_set_aside(warehouse: Warehouse, box: Path) -> None:
    put_keys(box)
    environment = keys_of(warehouse, {2: 5})
    report = warehouse.load(make_table(key=KEY), box / "*", source="feed")
    # a and b repeat the key 2; c repeats only a key of b, which is not stored.
    assert environment.states() == {"a.csv": "set_aside", "b.csv": "set_aside", "c.csv": "loaded"}
    assert "1 of 2 rows" in str(report.packages[0].reason)
    assert warehouse.rows("k, s") == [(3, "c"), (4, "c")]
    assert report.rows == 2
    assert tidy(warehouse)


def test_copy_with_keys_that_exist_fails(warehouse: Warehouse, box: Path) -> None:
    put_keys(box)
    keys_of(warehouse, {})
    with pytest.raises(DuplicateKeyError, match=r"b\.csv"):
        warehouse.load(make_table(key=KEY), box / "*")
    assert (warehouse.environment.commits, warehouse.on_disk()) == ([], set())


def test_rows_with_keys_that_exist_are_ignored(warehouse: Warehouse, box: Path) -> None:
    put_keys(box)
    keys_of(warehouse, {1: 5})
    report = warehouse.load(make_table({"on_conflict": "ignore"}, KEY), box / "*")
    assert warehouse.rows("k, s") == [(2, "a"), (3, "b"), (4, "c")]
    assert [(package.rows, package.rejected) for package in warehouse.environment.packages] == [
        (1, 1),
        (1, 1),
        (1, 1),
    ]
    assert (report.rows, report.rejected) == (3, 3)
    assert warehouse.environment.commits[0].replaced == ()
    assert [f.rows for f in warehouse.environment.files if f.kind == FILE_DELETES] == [3]
    assert tidy(warehouse)


def test_rows_with_keys_that_exist_replace(warehouse: Warehouse, box: Path) -> None:
    put_keys(box)
    keys_of(warehouse, {1: 5})
    report = warehouse.load(make_table({"on_conflict": "replace"}, KEY), box / "*")
    assert warehouse.rows("k, s") == [(1, "a"), (2, "b"), (3, "c"), (4, "c")]
    assert report.rows == 6
    assert 5 in warehouse.environment.commits[0].replaced
    assert len(warehouse.environment.commits[0].replaced) == 3


def test_keys_without_conflicts(warehouse: Warehouse, box: Path) -> None:
    put(box, "a.csv", [(hour(1), 1, 0.5, "a")])
    warehouse.environment.conflicts = lambda files: NONE
    for policy in ("reject", "ignore", "replace"):
        put(box, "a.csv", [(hour(1), 1, 0.5, policy)])
        warehouse.environment.packages.clear()
        warehouse.load(make_table({"on_conflict": policy}, KEY), box / "*")
    assert len(warehouse.rows()) == 3


# -- the plan


def test_a_plan_explains_itself(warehouse: Warehouse, box: Path) -> None:
    for number in range(7):
        put(box, f"{number}.csv", [])
    packages = tuple(list_packages(str(box)))
    lines = Load(make_table(), warehouse.storage, packages, "csv").explain()
    assert lines[0] == 'load 7 csv packages of 63 bytes into table "t"'
    assert lines[-2:] == ["  and 2 more", "a bad package fails the load"]
    feed = Load(make_table(), warehouse.storage, packages[:1], "csv", source="feed")
    assert feed.explain()[-1] == "bad packages are set aside"


def test_gzip_members_are_all_read(warehouse: Warehouse, box: Path) -> None:
    first = gzip.compress(f"ts,k\n{hour(1)},1\n".encode())
    (box / "a.csv.gz").write_bytes(first + gzip.compress(f"{hour(1)},2\n".encode()))
    warehouse.load(make_table(), box / "*")
    assert warehouse.rows("k") == [(1,), (2,)]
