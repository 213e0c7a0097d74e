"""Prune any nn.Module: find its tables, gate their columns, and shrink it without changing its predictions."""
