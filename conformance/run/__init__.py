"""One run: phases give scenarios, the pool gives them to workers."""
