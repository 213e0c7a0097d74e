"""Renders run folders and comparisons as HTML pages, tables and figures."""
