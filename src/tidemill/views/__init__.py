"""Continuous views: queries whose answers are fresh at every read and cheap at every insert.

The way of a view (docs/design/20261116-continuous-views.md):

1. ``defining`` splits its query into digests and a final query, and puts both into the catalog;
2. ``follower`` keeps the state of digests abreast of their stream: digest files, then hot rows;
3. ``upkeep`` is the thread that follows streams while nobody asks;
4. ``answering`` follows what is left, runs the final query and keeps the answer until something
   changes;
5. ``registry`` knows all of them, and is what the engine talks to;
6. ``continuous`` evaluates queries whose answers are kept as streaming tables.
"""
