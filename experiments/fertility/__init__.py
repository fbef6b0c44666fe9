"""Fertility: how many tokens tokenizers need for a text, before any model is trained."""
