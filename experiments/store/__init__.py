"""Artifacts on disk, and the records of the runs that made them."""
