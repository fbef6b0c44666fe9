"""Curves of bits per byte over training compute, their differences, and what they are worth at a deployment."""
