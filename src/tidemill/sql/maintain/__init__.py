"""A view's query in two floors: digests of streams, kept as rows arrive, and a final over them.

``split_view`` is called when a view is made; what it gives is data (``plan``), which the catalog
keeps as JSON. ``reading`` has the texts by which a view is read. See
docs/design/20261116-continuous-views.md.

- ``passes``: what happens to the query before it is split, in order;
- ``expand``: views over views, as one query;
- ``checks``, ``refusals``: what cannot be maintained, and what to write instead;
- ``naming``: tables by other names;
- ``split``: stream by stream, with ``lifting`` and ``panes`` for now() and ``sessions``;
- ``binding``: DuckDB says whether the parts are queries, and which types they give.
"""

from tidemill.sql.maintain.expand import expand_views
from tidemill.sql.maintain.plan import (
    DIGEST,
    REFERENCE,
    ROWS,
    DigestParts,
    Pane,
    ViewParts,
    ViewTable,
    digest_from_json,
    digest_to_json,
    from_json,
    to_json,
)
from tidemill.sql.maintain.reading import (
    Reach,
    answer_sql,
    bounds_sql,
    reach_of,
    read_sql,
)
from tidemill.sql.maintain.split import split_view

__all__ = [
    "DIGEST",
    "REFERENCE",
    "ROWS",
    "DigestParts",
    "Pane",
    "Reach",
    "ViewParts",
    "ViewTable",
    "answer_sql",
    "bounds_sql",
    "digest_from_json",
    "digest_to_json",
    "expand_views",
    "from_json",
    "reach_of",
    "read_sql",
    "split_view",
    "to_json",
]
