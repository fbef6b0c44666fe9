"""Artifacts on disk, and the records of the runs that use them."""
