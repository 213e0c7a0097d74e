"""Reading, updating and storing rows of embedding tables."""
