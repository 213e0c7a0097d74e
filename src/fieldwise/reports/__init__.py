"""Run folders and comparisons to pages, tables and pictures for people."""
