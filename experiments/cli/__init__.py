"""The command line: Hydra, console output, signals, sweeps."""
