"""History: write-once Parquet files in time partitions, named by the catalog.

``writing`` turns batches into files, ``reading`` chooses files for a query and says how DuckDB
reads them. This room knows neither Spark nor the hot tier: the pipeline's tasks call the one, the
federation calls the other.
"""
