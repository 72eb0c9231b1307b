"""Settings: what a table and a database may be told, with their defaults and their bounds.

The registries ``TABLE_SETTINGS``, ``VIEW_SETTINGS`` and ``DATABASE_SETTINGS`` are the only place
where a setting is named; the parser of ``WITH (…)``, ``tidemill.settings`` and the documentation's
test read them.
Values are stored as text, as the user wrote them, and read through the setting's parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.errors import SettingError, did_you_mean

# Every DuckDB of ours uses what it was built with: no query may fetch code from elsewhere.
DUCKDB_CLOSED = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
SECOND_US = 1_000_000
_UNITS_US = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": SECOND_US,
    "sec": SECOND_US,
    "s": SECOND_US,
    "minute": 60 * SECOND_US,
    "min": 60 * SECOND_US,
    "m": 60 * SECOND_US,
    "hour": 3_600 * SECOND_US,
    "h": 3_600 * SECOND_US,
    "day": 86_400 * SECOND_US,
    "d": 86_400 * SECOND_US,
    "week": 7 * 86_400 * SECOND_US,
    "w": 7 * 86_400 * SECOND_US,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*(?=\d|$)", re.IGNORECASE)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
DURATION_US_MAX = 292_000 * 365 * 86_400 * SECOND_US // 2
SIZE_BYTES_END = 2**63
FOREVER = "forever"


def parse_duration_us(text: str) -> int:
    """Microseconds of a duration with units.

    >>> [parse_duration_us(text) for text in ("10 minutes", "1 hour 30 s", "20 ms")]
    [600000000, 3630000000, 20000]
    """
    total, at = 0.0, 0
    stripped = text.strip()
    while at < len(stripped):
        match = _DURATION.match(stripped, at)
        word = match[2].lower() if match else ""
        unit = _UNITS_US.get(word) or _UNITS_US.get(word.removesuffix("s"))
        if not match or not unit:
            raise ValueError(f"\"{text}\" is not a duration such as '10 minutes'")
        total += float(match[1]) * unit
        at = match.end()
    if not stripped or total > DURATION_US_MAX:
        raise ValueError(f"\"{text}\" is not a duration such as '10 minutes'")
    return round(total)


def parse_size_bytes(text: str) -> int:
    """Bytes of a size; MB counts in thousands and MiB in 1,024s.

    >>> parse_size_bytes("2 GB"), parse_size_bytes("1 MiB")
    (2000000000, 1048576)
    """
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(f"\"{text}\" is not a size such as '512 MB'")
    base = 1_024 if match[3] else 1_000
    size = float(match[1]) * base ** " kmgt".index(match[2].lower() or " ")
    if size >= SIZE_BYTES_END:
        raise ValueError("it is more than any machine has")
    return int(size)


def _positive_duration(text: str) -> int:
    if (us := parse_duration_us(text)) <= 0:
        raise ValueError("the duration must be longer than nothing")
    return us


def _duration_or_forever(text: str) -> int | None:
    return None if text.strip().lower() == FOREVER else _positive_duration(text)


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if (word := text.strip().lower()) not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return word

    return parse


def _memory(text: str) -> int:
    if (size := parse_size_bytes(text)) < MEMORY_BYTES_MIN:
        raise ValueError("it must be at least 1 MB")
    return size


def _share(text: str) -> float:
    share = float(text)
    if not SHARE_MIN <= share <= SHARE_MAX:
        raise ValueError(f"it must be between {SHARE_MIN} and {SHARE_MAX}")
    return share


def _spark_memory(text: str) -> int:
    if (size := parse_size_bytes(text)) < SPARK_MEMORY_BYTES_MIN:
        raise ValueError("it must be at least 1 GB")
    return size


DEFER, EAGER = "defer", "eager"
MEMORY_BYTES_MIN = 1_000_000
SPARK_MEMORY_BYTES_MIN = 1_000_000_000
SHARE_MIN, SHARE_MAX = 0.05, 0.95


@dataclass(frozen=True)
class Setting:
    """One setting: its name, default (as text), parser, and the sentence that explains it."""

    name: str
    default: str
    parse: Callable[[str], Any]
    about: str
    alterable: bool = True
    is_kept: bool = False
    """Of a database: it belongs to the data, not to the process, and is kept in the catalog."""


TABLE_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "partition",
            "1 hour",
            _positive_duration,
            "length of a time partition in history",
            alterable=False,
        ),
        Setting(
            "retention",
            FOREVER,
            _duration_or_forever,
            "how long rows are kept, by their time column",
        ),
        Setting("hot", "10 minutes", _positive_duration, "how long rows stay in memory at least"),
        Setting(
            "late",
            "accept",
            _choice("accept", "divert", "reject"),
            "what happens to rows below the watermark",
        ),
        Setting(
            "rejected",
            "error",
            _choice("error", "divert"),
            "whether bad rows fail their batch or go to <table>$rejected",
        ),
        Setting(
            "on_conflict",
            "reject",
            _choice("reject", "ignore", "replace"),
            "what happens to a row whose primary key exists",
        ),
        Setting(
            "durability",
            "sync",
            _choice("sync", "batch", "none"),
            "when the log is forced to disk: before the acknowledgement, soon after, or never",
        ),
        Setting(
            "clock",
            "wall",
            _choice("wall", "event"),
            "what RECENT and the watermark call now: the machine's clock or the newest row",
        ),
        Setting(
            "max_future",
            "1 hour",
            _duration_or_forever,
            "a time further ahead of the machine's clock moves neither watermark nor clock",
        ),
        Setting("memory", "2 GB", _memory, "bound of the table's rows and indices in memory"),
        Setting(
            "move",
            "adaptive",
            _choice("adaptive", "periodic", "manual"),
            "when rows leave memory for history: as arrivals and queries suggest, at intervals, or "
            "on FLUSH",
        ),
        Setting("move_every", "1 minute", _positive_duration, "the interval between moves"),
        Setting(
            "move_fill",
            "0.6",
            _share,
            "the share of memory in use at which rows move, whatever the interval; less where they "
            "arrive fast",
        ),
        Setting("move_min", "16 MB", parse_size_bytes, "a move of less is not worth its cost"),
        Setting(
            "changes",
            DEFER,
            _choice(DEFER, EAGER),
            "how UPDATE and DELETE reach rows: when somebody reads rows that they concern, or at "
            "once",
        ),
        Setting(
            "publish",
            "none",
            _choice("none", "delta"),
            "a table format in which history is kept current for others to read",
        ),
    )
}

VIEW_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("refresh", "read", _choice("read"), "when the answer is made: when it is read"),
        Setting("memory", "1 GB", _memory, "bound of the view's state in memory"),
    )
}

DATABASE_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("catalog", "sqlite", str, "sqlite, or the URL of a PostgreSQL database"),
        Setting("threads", "0", int, "threads of a query; 0 means all cores"),
        Setting("query_memory", "4 GB", parse_size_bytes, "bound of a query's working memory"),
        Setting(
            "backpressure_wait",
            "5 seconds",
            parse_duration_us,
            "how long a writer waits for memory before it gets an error, while no move makes room",
        ),
        Setting(
            "batch_interval",
            "20 ms",
            _positive_duration,
            "with durability = 'batch', the longest time a row may wait for the disk",
        ),
        Setting(
            "serve_local",
            "on",
            _choice("on", "off"),
            "whether other processes of the user can connect to this one",
        ),
        Setting("segment_size", "64 MiB", _memory, "size at which a log segment is closed"),
        Setting(
            "spark_master",
            "local[*]",
            str,
            "where pipeline jobs run: a Spark master, or 'inline' for this process without Spark",
        ),
        Setting(
            "spark_memory",
            "2 GB",
            _spark_memory,
            "what Spark may take on this machine: a half is Java's heap, the rest its workers'",
        ),
        Setting(
            "lifetime",
            "auto",
            _choice("auto", "long", "short"),
            "how long the process stays: a long one starts Spark early and keeps it, a short one "
            "leaves background work to others; auto is short for the first 20 seconds",
        ),
        Setting(
            "storage",
            "data",
            str,
            "where files of history are kept: a folder (relative to the warehouse) or a URL",
            alterable=False,
            is_kept=True,
        ),
        Setting(
            "time_travel",
            "1 day",
            _duration_or_forever,
            "how long older snapshots can be read, and their files are kept",
            is_kept=True,
        ),
        Setting(
            "spark_scan",
            "16 GB",
            parse_size_bytes,
            "with route = 'auto', a query that reads more bytes of history runs on Spark, until "
            "the costs of both places are measured",
        ),
    )
}

SESSION_VARIABLES: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "route",
            "auto",
            _choice("auto", "local", "spark", "spark_sql"),
            "where queries run: here, partition by partition on Spark, or on Spark's own SQL",
        ),
    )
}


class Settings(Mapping[str, Any]):
    """Parsed values of one registry: defaults overlaid with what was kept, then with what was
    given."""

    def __init__(
        self,
        registry: dict[str, Setting],
        given: Mapping[str, object],
        kept: Mapping[str, str] | None = None,
    ) -> None:
        self.registry = registry
        self.given = {name: check(registry, name, value) for name, value in given.items()}
        self.kept = dict(kept or {})
        self._values = {name: setting.parse(self.text(name)) for name, setting in registry.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, name: str) -> str:
        """The value as the user would write it."""
        return self.given.get(name, self.kept.get(name, self.registry[name].default))

    def origin(self, name: str) -> str:
        """Where the value comes from: 'given', the 'warehouse' that kept it, or 'default'."""
        if name in self.given:
            return "given"
        return "warehouse" if name in self.kept else "default"

    def with_kept(self, kept: Mapping[str, str]) -> Settings:
        return Settings(self.registry, self.given, kept)


def check(registry: dict[str, Setting], name: str, value: object) -> str:
    """The value's text if the setting exists and accepts it; an error that helps otherwise."""
    setting = registry.get(name)
    if setting is None:
        raise SettingError(
            f'setting "{name}" does not exist',
            hint=did_you_mean(name, registry) or f"the settings are {', '.join(registry)}",
        )
    text = str(value)
    try:
        setting.parse(text)
    except ValueError as error:
        raise SettingError(
            f'setting "{name}" cannot be {text!r}',
            detail=str(error),
            hint=f"{name}: {setting.about}; the default is '{setting.default}'",
        ) from error
    return text
