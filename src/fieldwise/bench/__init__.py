"""Measures what a compact model saves when it serves."""
