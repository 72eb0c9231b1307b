"""The hot tier: what arrived, in memory and in the log.

``table`` is the room's front door: a ``HotTable`` takes accepted batches, writes them to its
``log``, publishes them as immutable Arrow ``block``s in a ``ring``, and answers snapshots through
the ``interval`` index (time) and the ``values`` indices (keys). ``recovery`` builds a table again
from its log.
"""
