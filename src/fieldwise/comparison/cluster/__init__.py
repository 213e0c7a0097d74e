"""A comparison on a Dask cluster: client, crew, and what runs on workers. Only this package imports Dask."""
