"""Inspection of vocabularies and of their effect on a text."""
