"""Text in, typed statements out; trees in, plainer trees out. The first room a query passes.

- ``parse``, ``parse_one``: statements as frozen data (``statements``) from a text.
- ``rewrite_deferred``: TUMBLE, HOP, SESSION and RECENT as plain subqueries.
- ``find_scans``: which streaming tables a query reads, and what it surely asks of each.
- ``passes``: such steps as functions that stand in tuples, in the order in which they are taken.
- ``constant``, ``comparable``: the Python value of a constant, when it is certain.
- ``take_system_time``, ``moment_us``: tables read as of an older moment, and which.
- ``check_params``, ``bind_rows``: parameters and their values.

No other room is imported here; what the catalog knows comes in as a function (``Tables``).
"""

from tidemill.sql.calls import StreamTable, Tables
from tidemill.sql.fold import NOT_CONSTANT, NotConstant, comparable, constant
from tidemill.sql.inserts import DEFAULT, Default
from tidemill.sql.names import position_of, table_name_of, table_node
from tidemill.sql.params import (
    Param,
    Params,
    bind_rows,
    check_params,
    placeholder_value,
    placeholders,
)
from tidemill.sql.parser import parse, parse_one
from tidemill.sql.predicates import Conjunct, ScanRequest, find_scans
from tidemill.sql.travel import moment_us, take_system_time
from tidemill.sql.windows import Bound, NowBounds, Rewritten, rewrite_deferred
from tidemill.types import SEQ

__all__ = [
    "DEFAULT",
    "NOT_CONSTANT",
    "SEQ",
    "Bound",
    "Conjunct",
    "Default",
    "NotConstant",
    "NowBounds",
    "Param",
    "Params",
    "Rewritten",
    "ScanRequest",
    "StreamTable",
    "Tables",
    "bind_rows",
    "check_params",
    "comparable",
    "constant",
    "find_scans",
    "moment_us",
    "parse",
    "parse_one",
    "placeholder_value",
    "placeholders",
    "position_of",
    "rewrite_deferred",
    "table_name_of",
    "table_node",
    "take_system_time",
]
