"""Hydra's configuration groups, as a package so that an installed wheel finds them too (`pkg://configs`)."""
