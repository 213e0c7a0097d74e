"""Fitting weights: the task, one loop, its optimiser, regularity, evaluation and checkpoints."""
