"""Work on a Spark cluster: trials of a search, preparing tables, recommending to many. Only this room needs pyspark."""

JOB = "_job.json"  # says which job a folder belongs to; names with an underscore are no data for Spark
