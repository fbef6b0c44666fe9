"""Models for Hugging Face `transformers`."""
