"""From run folders to `docs/results`: compact data, tables and pictures. Read `write.py` first."""
