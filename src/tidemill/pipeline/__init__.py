"""The pipeline: jobs on Apache Spark, and the only room that imports pyspark.

``java`` finds a Java for Spark, ``spark`` owns the one Spark session of a process. Nothing here
runs before the first job asks for the session, so the hot path never pays for Spark.
"""
