"""Batch processing of many recordings: tables of frames, and an overview page."""
