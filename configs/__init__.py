"""Hydra's configuration groups, as a package so that an installed wheel can find them (`pkg://configs`)."""
