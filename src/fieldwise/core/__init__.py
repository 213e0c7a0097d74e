"""Plain values that every other package uses; no torch."""
