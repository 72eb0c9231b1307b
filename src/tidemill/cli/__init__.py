"""The command line: ``tidemill sql | load | status``.

``main`` finds the subcommand's module; each of those has ``configure`` (its options) and ``run``.
``session`` opens a warehouse or connects to its owner; ``shell`` runs statements and backslash
commands and shows results with ``render`` and errors with ``report``; ``prompt`` is its
interactive face.
"""
