"""Fitting weights: the task, one loop, its optimizer, regularity, evaluation and checkpoints."""
