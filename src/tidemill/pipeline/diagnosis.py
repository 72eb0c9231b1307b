"""What kept Spark from starting, in a sentence, out of the pages that Java and Spark log."""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE_CHARS_MAX = 300

_STAMP = re.compile(r"^\S+ \S+ (?:ERROR|WARN|FATAL) (?:\w+: )?")
_NOISE = re.compile(
    r"^\s*(?:at |\.\.\. |#|Caused by: .*Gateway|WARNING:|Using |Picked up |NOTE:|OpenJDK.*warning)"
    r"|incubator|log4j|^\d\d/\d\d/\d\d .* (?:WARN|INFO) ",
    re.IGNORECASE,
)
_KILLED = (-9, 137)


@dataclass(frozen=True)
class Diagnosis:
    """``may_retry``: the same start may well work a moment later."""

    detail: str
    hint: str | None = None
    may_retry: bool = False


_MEMORY_HINT = "set spark_memory to less, or free memory on this machine"
_MASTER_HINT = "the setting spark_master names the master; local[*] runs on this machine"
_KNOWN: tuple[tuple[str, Diagnosis], ...] = (
    (
        r"Could not reserve enough space|insufficient memory for the Java|Cannot allocate memory"
        r"|os::commit_memory|OutOfMemoryError|System memory \d+ must be at least",
        Diagnosis("there is not enough memory for Java", _MEMORY_HINT),
    ),
    (
        r"UnsupportedClassVersionError",
        Diagnosis(
            "the Java that was found is too old for Spark", "set JAVA_HOME to a Java 17 or newer"
        ),
    ),
    (
        r"BindException|could not bind on",
        Diagnosis(
            "Java may not listen on this machine's loopback address (127.0.0.1)",
            "a firewall or a sandbox may forbid it",
            may_retry=True,
        ),
    ),
    (
        r"Could not parse Master URL|Invalid master|Master must either be",
        Diagnosis("no such kind of master exists", _MASTER_HINT),
    ),
    (
        r"All masters are unresponsive|Failed to connect to master",
        Diagnosis("the master does not answer", _MASTER_HINT, may_retry=True),
    ),
    (
        r"No space left on device",
        Diagnosis("the disk is full", "free some space where the warehouse lies"),
    ),
    (
        r"Unrecognized (?:VM )?option|Could not create the Java Virtual Machine",
        Diagnosis(
            "Java refuses one of the options it was given",
            "look at JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS and SPARK_CONF_DIR in the environment",
        ),
    ),
)


def diagnose(log: str, exit_code: int | None, is_stalled: bool = False) -> Diagnosis:
    """Why a start failed.

    >>> diagnose("… Could not reserve enough space for object heap", 1).detail
    'there is not enough memory for Java'
    """
    for pattern, known in _KNOWN:
        if re.search(pattern, log):
            return known
    if is_stalled:
        return Diagnosis("Java was started and does nothing", may_retry=True)
    if exit_code in _KILLED:
        return Diagnosis("Java was killed, perhaps for want of memory", _MEMORY_HINT)
    if line := telling_line(log):
        return Diagnosis(line, may_retry=True)
    if exit_code is not None:
        return Diagnosis(f"Java ended with exit code {exit_code} and said nothing", may_retry=True)
    return Diagnosis("Java said nothing", may_retry=True)


def telling_line(log: str) -> str | None:
    """The first line that is neither a stack trace nor a warning.

    >>> telling_line("WARNING: incubator modules\\n26/11/18 10:00:00 ERROR Main: no such file")
    'no such file'
    """
    for line in log.splitlines():
        if line.strip() and not _NOISE.search(line):
            return _STAMP.sub("", line.strip())[:LINE_CHARS_MAX]
    return None
