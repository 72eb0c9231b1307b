"""Kept continuous queries: one query evaluated again and again, its answers kept as a stream.

Document 002 §III-B, Def. 4. ``definition`` is what the catalog keeps of one; ``reads`` finds the
streams in it; ``ticks``, ``rows`` and ``closes`` evaluate it, one for each slide; ``continuous``, a
floor above, decides when.
"""
