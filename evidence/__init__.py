"""Makes the pages of `docs/results` from run folders: compact data, tables and figures. Read `write.py` first."""
