"""Infers the kind of each raw column from its values in training rows, then from its type, then from its name."""
