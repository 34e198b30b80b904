"""Reports that add up: of shards to the report of one run, of many runs to a comparison and a trend."""
