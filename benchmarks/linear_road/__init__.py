"""Linear Road, the benchmark of stream databases: its input, and a judge of the answers.

The path of a run, read from top to bottom:

``fields``      the 15 columns of the input, the tables of the answers, the sizes of the road
``traffic``     one expressway: cars that enter, queue, crash, ask and leave, 30 seconds at a time
``generator``   all expressways of a plan, second by second, as record batches; the past's tolls
``files``       the same input, and the tolls, as the comma-separated files made elsewhere
``validator``   the rules, plainly: every answer that an input calls for
``comparison``  what was delivered beside what was called for: missing, extra, wrong, late

The rules, their sources and the choices where sources differ are in ``docs/linear-road.md``.
"""
