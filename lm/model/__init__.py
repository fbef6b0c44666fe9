"""The transformer, its loss, and generation."""
