"""Batch processing: many recordings, from local folders or object storage, computed by many processes."""
