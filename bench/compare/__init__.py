"""attend against this machine's limits and against every peer that is installed: `attend bench`, `python -m attend.bench`."""
