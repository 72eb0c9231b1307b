"""System tables: what the warehouse knows of itself, as tables in the schema ``tidemill``.

The room stands above what it describes. Each table is one function from the state of the warehouse
to Arrow, made when somebody reads it; ``federation.system`` has the names and columns.

- ``state``: where the state comes from;
- ``registry``: which function makes which table;
- ``arrow``: how columns and rows become a table;
- ``definitions``: columns, indexes, settings;
- ``information``: tables and columns under the names of the SQL standard, for other programs;
- ``memory``: tables, blocks, ingest, with ``counting`` of rows in files;
- ``files``: partitions, files, snapshots;
- ``work``: queries, jobs, moves, costs, sources, packages.
"""
