"""What DuckDB's profiler tells, as plain data."""

from __future__ import annotations

from typing import Any

from tidemill.federation.profiling import FILE_SCAN, Operator, read_profile


def node(kind: str, rows: int = 0, children: tuple[dict[str, Any], ...] = (), **about: Any) -> Any:
    return {
        "type": kind,
        "intermediate_rows": rows,
        "timing": 0.5,
        "extra_info": about,
        "children": list(children),
    }


def test_the_profilers_own_steps_are_left_out() -> None:
    inner = node("PROJECTION", 3, (node("TABLE_SCAN", 10, Function="read_parquet"),))
    told = {"operator": [node("EXPLAIN_ANALYZE", 0, (node("RESULT_COLLECTOR", 0, (inner,)),))]}
    found = read_profile(told, 1.5)
    assert [step.kind for step in found.steps] == ["PROJECTION", "TABLE_SCAN"]
    assert (found.rows, found.elapsed_s) == (3, 1.5)
    assert found.steps[1].function == FILE_SCAN


def test_a_union_answers_what_its_parts_do() -> None:
    told = {"operator": [node("UNION", 0, (node("A", 2), node("UNION", 0, (node("B", 5),))))]}
    assert read_profile(told, 0).rows == 7


def test_the_phases_of_planning_are_added_up() -> None:
    told = {
        "planner": {"total_time": 0.25},
        "optimizer": {"total_time": 0.5},
        "physical_planner": {},
        "io": {"total_bytes_read": 4096},
    }
    found = read_profile(told, 1)
    assert (found.planning_s, found.bytes_read, found.steps) == (0.75, 4096, ())


def test_an_answer_without_a_profile_has_an_empty_one() -> None:
    for told in ({}, [], None, {"operator": []}):
        assert read_profile(told, 0.1).rows == 0


def test_files_and_row_groups_of_a_scan() -> None:
    scan = Operator.of(
        {
            **node("TABLE_SCAN", 7, **{"Total Files Read": "12", "Filters": ["k=1", "v>2"]}),
            "row_groups_scanned": 3,
        }
    )
    assert (scan.files, scan.row_groups) == (12, 3)
    assert scan.about["Filters"] == "k=1, v>2"
    assert Operator.of(node("TABLE_SCAN", 1, **{"Total Files Read": "many"})).files == 0
