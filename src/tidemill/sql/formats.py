"""Formats of files: what a file's name says about what is in it (COPY, CREATE SOURCE)."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token

from tidemill.errors import did_you_mean
from tidemill.sql.tokens import Cursor

_FORMATS = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "ndjson": "ndjson",
    "jsonl": "ndjson",
    "parquet": "parquet",
}
_EXTENSIONS = {**_FORMATS, "txt": "csv", "pq": "parquet"}
_COMPRESSIONS = (".gz", ".gzip", ".zst", ".zstd")
_DELIMITERS = ("delimiter", "delim", "sep")
_PATH_LENGTH_SHOWN = 60


def choose_format(
    cursor: Cursor,
    path: str,
    options: dict[str, object],
    *,
    path_token: Token | None,
    format_token: Token | None,
    hint: str,
) -> str:
    """The format that the options say, else the path's ending; ``format`` leaves the options.

    ``hint`` says how the statement at hand names a format.
    """
    given = options.pop("format", None)
    name = str(given).lower() if given is not None else extension(path)
    if given is not None and name not in _FORMATS:
        cursor.fail(
            f'format "{given}" is not offered',
            format_token,
            hint=did_you_mean(name, _FORMATS) or "formats: csv, json, ndjson, parquet",
        )
    if name not in _EXTENSIONS:
        cursor.fail(
            f'the file\'s name "{path[-_PATH_LENGTH_SHOWN:]}" does not say its format',
            path_token,
            hint=hint,
        )
    if name == "tsv" and not any(key in options for key in _DELIMITERS):
        options["delimiter"] = "\t"
    return _EXTENSIONS[name]


def extension(path: str) -> str:
    """The ending that says the format, in lower case; the one of compression left out.

    >>> [extension(path) for path in ("in/*.csv.gz", "https://host/a.parquet?key=1.5", "a/b")]
    ['csv', 'parquet', '']
    """
    found = _last_ending(path)
    if found not in _EXTENSIONS and "://" in path and "?" in path:
        return _last_ending(path.rpartition("?")[0])
    return found


def _last_ending(path: str) -> str:
    lower = path.lower()
    for suffix in _COMPRESSIONS:
        lower = lower.removesuffix(suffix)
    file = lower.replace("\\", "/").rpartition("/")[2]
    return file.rpartition(".")[2] if "." in file else ""
