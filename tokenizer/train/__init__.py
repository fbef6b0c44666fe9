"""Phase 1: pretoken counts and BPE training."""
