"""Assembly: a warehouse is put together floor by floor. What a floor offers is a frozen record.

1. ``store``: the folder, its owner, the catalog, the files of history, DuckDB;
2. ``memory``: streaming tables, and the pipeline that moves their rows to history;
3. ``reading``: plans, routes and views over both, and loads;
4. ``writing``: what carries out statements, and kept queries, which write by themselves.

Objects are complete when they are made. A room that has something to tell those above it is given a
list of subscribers that was made first (``events``), or what the upper room implements.
"""
