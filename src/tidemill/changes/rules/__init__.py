"""Rules: which changes do not concern a reader (document 000 §III-B).

A rule looks at changes of one form together and answers where one of them may still matter. "It may
matter" is always allowed, "it does not" never wrongly. The rules of ``RULES`` are asked in their
order, and the first that rules a change out is the one that EXPLAIN names.
"""

from tidemill.changes.rules import (
    no_rows,
    nothing_asked,
    other_columns,
    other_rows,
    other_times,
)
from tidemill.changes.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("no row can match the query", nothing_asked.may_matter),
    Rule("columns that the query does not read", other_columns.may_matter),
    Rule("other times", other_times.may_matter),
    Rule("rows that the query leaves out, before and after", other_rows.may_matter),
    Rule("no row is meant", no_rows.may_matter),
)
