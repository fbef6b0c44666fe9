"""The commands of `superbpe`, one module each: `parser()` returns its arguments, `run(arguments)` does the work."""
