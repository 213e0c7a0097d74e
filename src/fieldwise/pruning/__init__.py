"""Any nn.Module: finds its tables, gates their columns, and makes it smaller without changing a prediction."""
