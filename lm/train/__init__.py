"""Training: optimizers, schedule, checkpoints, several processes."""
