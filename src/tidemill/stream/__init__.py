"""One streaming table as readers see it: which rows of memory and files count, and what is new.

Everything that reads rows of a stream takes its scan from here, and everything that follows a
stream takes its batches from here; no other room knows which rows count.

- ``removed``: rows of files that no longer count;
- ``pins``: which snapshot a reader holds;
- ``image``: memory, snapshot and removed rows, taken in the one right order;
- ``relation``: the SQL that reads an image's files;
- ``reader``: files and memory together, for one scan of a query;
- ``past``: what a reader saw at an earlier moment;
- ``counting``: how many rows of files count;
- ``keys``: primary keys over memory and files;
- ``feed``: what appears behind a ``position`` and what is taken back (``retracting``);
- ``leaving``: which rows leave memory for files.
"""
