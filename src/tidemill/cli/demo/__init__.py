"""``tidemill demo``: expressway traffic poured into a streaming table, watched as it flows.

``traffic`` simulates, ``producer`` pours, ``questions`` asks, ``board`` draws; ``command`` starts
and stops them.
"""

from tidemill.cli.demo.command import configure, run

__all__ = ["configure", "run"]
