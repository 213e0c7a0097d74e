"""Several processes that train one model: connecting them, and what moves between them."""
