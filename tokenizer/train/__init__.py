"""Phase 1: from a corpus to merges."""
