"""Linear Road, the benchmark of stream databases: its input, a driver, and a judge of the answers.

The path of a run, read from top to bottom:

``fields``      the 15 columns of the input, the tables of the answers, the sizes of the road
``traffic``     one expressway: cars that enter, queue, crash, ask and leave, 30 seconds at a time
``generator``   all expressways of a plan, second by second, as record batches; the past's tolls
``files``       the same input, and the tolls, as the comma-separated files made elsewhere
``staging``     input, tolls and history laid down in files before the clock starts
``driver``      the measured process: feeds the application by the clock and stamps its answers
``deliveries``  the answers as they came, each with its moment
``onetime``     one-time queries over the past, beside it all
``sampling``    processor and memory, second by second
``validator``   the rules, plainly: every answer that an input calls for
``comparison``  what was delivered beside what was called for: missing, extra, wrong, late
``judging``     the two of them, one process for each expressway
``run``         all of that in order, once or as a search for the highest L
``report``      the page about a run, with the pictures of ``plots``

The rules, their sources and the choices where sources differ are in ``docs/linear-road.md``.
"""
