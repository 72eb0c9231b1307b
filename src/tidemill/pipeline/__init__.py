"""The pipeline: jobs on Apache Spark, and the only room that imports pyspark.

``java`` finds a Java for Spark, ``spark`` owns the one Spark session of a process, ``executor``
runs functions as tasks on it or in threads, ``jobs`` is the queue that runs plans and commits
them. The jobs: ``load`` and ``loading`` bring packages in (``packages`` lists them, ``sources``
watches for them), ``move`` and ``mover`` take rows from memory to history, ``compact`` merges and
expires files. Nothing here starts Spark before the first job asks for it, so the hot path never
pays for it.
"""
