"""The hot tier: what arrived, in memory and in the log.

``table`` is the room's front door: a ``HotTable`` takes accepted batches, writes them to its
``log``, publishes them, first in pieces and then as immutable Arrow ``block``s (``published``), and
gives readers a ``view`` of them, whose rows are found by the ``interval`` index (time) and the
``values`` indices (keys). ``recovery`` builds a table again from its log.
"""
