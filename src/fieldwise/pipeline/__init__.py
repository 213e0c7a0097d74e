"""The stages of a run, from files to files."""
