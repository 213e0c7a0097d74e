"""A run from files to files: settings, folders, stages."""
