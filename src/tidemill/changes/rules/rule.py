"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.changes.alike import Alike, Mask
from tidemill.changes.needed import Needed

MayMatter: TypeAlias = Callable[[Alike, Needed], Mask]
"""Where changes of a form may matter to a reader."""


@dataclass(frozen=True)
class Rule:
    """``why`` says of what it rules out: "left out: …"."""

    why: str
    may_matter: MayMatter
