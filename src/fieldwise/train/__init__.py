"""Training: the task, the loop and its plan, the stages, regularity, evaluation and checkpoints."""
