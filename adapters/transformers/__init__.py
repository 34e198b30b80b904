"""Drives `get_rope_index` of the model classes in Hugging Face transformers."""
