"""Reports: numbers, charts and HTML pages."""
