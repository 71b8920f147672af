"""Work on a Spark cluster: trials of a search, preparing tables, recommending to many. Only this room needs pyspark."""
