"""The options of a load, as the catalog keeps those of a source: texts by name.

A source may have a list of columns. It is kept among the options, under a name that no option of a
statement can have; here is the one place that writes and reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

_COLUMNS = "tidemill.columns"


@dataclass(frozen=True)
class SourceOptions:
    """``texts`` are the statement's options; ``columns`` is its list of columns, None for all.

    >>> kept = SourceOptions({"header": "true"}, ("ts", "k")).kept
    >>> SourceOptions.of(kept)
    SourceOptions(texts={'header': 'true'}, columns=('ts', 'k'))
    """

    texts: Mapping[str, str]
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, kept: Mapping[str, str]) -> SourceOptions:
        """What the catalog kept."""
        texts = {name: text for name, text in kept.items() if name != _COLUMNS}
        columns = kept.get(_COLUMNS)
        return cls(texts, None if columns is None else tuple(json.loads(columns)))

    @property
    def kept(self) -> dict[str, str]:
        """What the catalog keeps."""
        if self.columns is None:
            return dict(self.texts)
        return {**self.texts, _COLUMNS: json.dumps(self.columns)}


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options of a statement as texts.

    >>> option_texts({"header": True, "delimiter": "|"})
    {'header': 'true', 'delimiter': '|'}
    """
    return {name: _option_text(value) for name, value in options.items()}


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    return str(value)
