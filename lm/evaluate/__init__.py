"""Loss per byte on held-out text, its intervals, and what else is measured of a model."""
