"""The error tree: one object that every shell renders.

An error says what happened (``message``: lowercase, factual, names the object), more about it
(``detail``), what to do (``hint``) and, for SQL text, where (``position``). ``code`` is stable:
programs may compare it, people may search for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a SQL text something stands; line and column count from one."""

    line: int
    column: int
    words: str = ""


class TidemillError(Exception):
    """The root of everything Tidemill raises on purpose."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: Position | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        lines = [self.message]
        if self.position is not None:
            near = f' at "{self.position.words}"' if self.position.words else ""
            lines[0] += f" (line {self.position.line}, column {self.position.column}{near})"
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The one shape in which an error leaves the process."""
        place = self.position
        return {
            "code": self.code,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            "line": place.line if place else None,
            "column": place.column if place else None,
            "words": place.words if place else None,
        }


class SqlSyntaxError(TidemillError):
    """The text is not a statement."""

    code = "syntax_error"


class UnknownNameError(TidemillError):
    """A table, column, index or setting that does not exist."""

    code = "unknown_name"


class DuplicateNameError(TidemillError):
    """A name that is already taken."""

    code = "duplicate_name"


class UnsupportedError(TidemillError):
    """Understood, and not offered."""

    code = "unsupported"


class SettingError(TidemillError):
    """A setting's name or value is wrong."""

    code = "invalid_setting"


class DefinitionError(TidemillError):
    """A table or index definition contradicts itself."""

    code = "invalid_definition"


class DependencyError(TidemillError):
    """Something else needs what is to be taken away."""

    code = "in_use"


class QueryError(TidemillError):
    """A query that parsed and failed to bind or to run."""

    code = "query_error"


class RowsRejectedError(TidemillError):
    """Rows do not fit the table; nothing of the batch was stored."""

    code = "rows_rejected"


class DuplicateKeyError(RowsRejectedError):
    """Rows repeat a primary key; nothing of the batch was stored."""

    code = "duplicate_key"


class LateRowsError(RowsRejectedError):
    """Rows below the watermark of a table with late = 'reject'; nothing was stored."""

    code = "late_rows"


class FileFormatError(TidemillError):
    """A file cannot be read as what it claims to be."""

    code = "file_format"


class BackpressureError(TidemillError):
    """A table's memory stayed full for as long as a writer may wait."""

    code = "memory_full"


class DurabilityError(TidemillError):
    """The log could not promise what the table's durability promises."""

    code = "durability"


class DiskFullError(DurabilityError):
    """No space for the log; nothing was stored, and work goes on when space returns."""

    code = "disk_full"


class ViewFailedError(QueryError):
    """A view's own expressions fail on rows of its stream; the stream goes on without it."""

    code = "view_failed"


class CorruptLogError(TidemillError):
    """A log or warehouse file fails its checksum where that cannot be a torn tail."""

    code = "corrupt_log"


class DamagedFileError(TidemillError):
    """A file of the warehouse is missing, or is not what was written."""

    code = "damaged_file"


class CatalogError(TidemillError):
    """The catalog cannot be read, written or migrated."""

    code = "catalog"


class ConflictError(CatalogError):
    """A commit contradicts one that came before it; nothing was stored."""

    code = "conflict"


class OwnedError(CatalogError):
    """Another process owns the warehouse."""

    code = "warehouse_owned"


class MissingPackageError(TidemillError):
    """A package is needed that comes with one of Tidemill's extras and is not installed."""

    code = "missing_package"

    @classmethod
    def of(cls, what: str, package: str, extra: str) -> MissingPackageError:
        return cls(
            f"{what} needs the package {package}, which is not installed",
            hint=f"pip install 'tidemill[{extra}]'",
        )


class ClosedError(TidemillError):
    """The database was closed."""

    code = "closed"


class PipelineError(TidemillError):
    """A job failed for a reason that is not in its data."""

    code = "pipeline"


class JobCancelledError(PipelineError):
    """The job was cancelled before it was committed."""

    code = "job_cancelled"


class SparkStartError(TidemillError):
    """Spark did not start."""

    code = "spark_start"


class JavaNotFoundError(UnsupportedError):
    """No Java that Spark can run on."""

    code = "java_not_found"


class SparkSqlError(TidemillError):
    """Spark's SQL could not answer; another route may."""

    code = "spark_sql"


class PackageChangedError(FileFormatError):
    """A package that changed or went away while it was read; a later look may find it whole."""

    code = "package_changed"


class ProtocolError(TidemillError):
    """The other side does not speak the local protocol, or says too much at once."""

    code = "protocol"


class TooManyConnectionsError(TidemillError):
    """The server serves as many connections as it may."""

    code = "too_many_connections"


class InternalError(TidemillError):
    """A failure that is nobody's statement's fault."""

    code = "internal"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the nearest known name, if one is near.

    >>> did_you_mean("pos_report", ["pos_reports", "cars"])
    'did you mean "pos_reports"?'
    >>> did_you_mean("zzz", ["pos_reports"]) is None
    True
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f'did you mean "{by_lower[near[0]]}"?' if near else None
