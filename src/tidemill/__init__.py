"""Tidemill: a stream warehouse. One SQL database over data that is still arriving, data that
arrived years ago, and the tables that explain both.

>>> import tidemill
>>> db = tidemill.open("warehouse/")  # doctest: +SKIP
>>> db.sql("SELECT 1").fetchall()  # doctest: +SKIP
[(1,)]
"""

from tidemill.engine import Database, open
from tidemill.errors import TidemillError
from tidemill.hot.intake import AppendResult
from tidemill.result import Result

__all__ = ["AppendResult", "Database", "Result", "TidemillError", "open"]
__version__ = "0.1.0"
