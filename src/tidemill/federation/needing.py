"""What a query needs of a stream, so that changes which do not concern it may go on waiting."""

from __future__ import annotations

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.changes.domains import Domain, both, compared, either, listed
from tidemill.changes.needed import Needed, is_plain
from tidemill.federation.plan import Scan
from tidemill.federation.scans import Asked, AskedBranch, span_of
from tidemill.hot.keys import probe
from tidemill.sql.predicates import Branch


def needed_of(scan: Scan, asked: AskedBranch) -> Needed:
    """What a query makes of the rows of a scan: the columns that it looks at, and which rows can
    matter to it."""
    assert scan.table is not None
    columns = scan.columns
    if columns is not None:
        leaves = Branch(scan.conjuncts, scan.alternatives).leaves
        columns = columns | {conjunct.column for conjunct in leaves}
    return Needed.of(columns, *span_of(scan.table, asked), _domains(scan.table, asked))


def _domains(table: Table, asked: AskedBranch) -> dict[str, Domain]:
    """The values that columns must have, by all that is asked."""
    found: dict[str, Domain] = {}
    for one in asked.asked:
        column = table.column(one[0])
        domain = None if column is None else _domain(column.type.arrow, one)
        if domain is not None:
            found = both(found, {one[0]: domain})
    for branches in asked.either:
        parts = [_domains(table, branch) for branch in branches]
        joined = parts[0]
        for part in parts[1:]:
            joined = either(joined, part)
        found = both(found, joined)
    return found


def _domain(kind: pa.DataType, asked: Asked) -> Domain | None:
    """The values for which a comparison holds, if they are plain ones."""
    _, operator, values = asked
    if not (is_plain(kind) or pa.types.is_float64(kind) or pa.types.is_timestamp(kind)):
        return None
    plain = [None if value is None else probe(kind, value) for value in values]
    if any(found is None and value is not None for found, value in zip(plain, values, strict=True)):
        return None
    return listed(plain) if operator == "in" else compared(operator, plain[0])
