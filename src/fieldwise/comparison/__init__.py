"""A comparison of searches: settings, cells, scheduler, results."""
