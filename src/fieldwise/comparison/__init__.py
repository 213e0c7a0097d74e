"""Many searches under one protocol."""
