"""Linear Road as an application of Tidemill: ``application.sql`` is all of it, ``application``
makes it in a warehouse, feeds it and reads its answers.

The rules are in ``docs/linear-road.md``; the generator, the driver and the judge of the answers are
in ``benchmarks/linear_road``.
"""
