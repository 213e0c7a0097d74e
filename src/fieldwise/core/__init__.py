"""Plain values, no torch and no files: what every other part speaks in."""
