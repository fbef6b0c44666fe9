"""The report: its numbers, its charts and its page."""
