"""Run records to tables for people."""
