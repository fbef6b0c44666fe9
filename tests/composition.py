"""Composing many configurations in one process: Hydra reads, merges and copies the same files for each of them."""

import copy
import dataclasses
import functools
import gc

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_store import ConfigStore


def reuse_parts():
    """From now on, read each file of a package once, and choose and merge each list of files once."""
    gc.set_threshold(50_000, 20, 20)  # walking over all objects of Torch is a quarter of the time
    ConfigStore.__deepcopy__ = lambda store, _: store  # hands out copies only
    ConfigRepository.load_config = _copied(
        ConfigRepository.load_config, lambda repository, config_path: (config_path, *_places(repository))
    )
    ConfigLoaderImpl._compose_config_from_defaults_list = _copied(
        ConfigLoaderImpl._compose_config_from_defaults_list,
        lambda _, defaults, repo: (
            *((default.config_path, default.package, default.primary) for default in defaults),
            *_places(repo),
        ),
    )
    config_loader_impl.create_defaults_list = _by_groups(config_loader_impl.create_defaults_list)


def _places(repository):
    """Identity of a source; a folder is never the same, because its files may have changed."""
    return [(source.path, source.scheme() == "file" and object()) for source in repository.get_sources()]


def _copied(work, key):
    """The same method, which does its work once for each key and returns copies of the result."""
    found = {}

    @functools.wraps(work)
    def method(*args, **named):
        at = key(*args, **named)
        if at not in found:
            found[at] = work(*args, **named)
        return copy.deepcopy(found[at])

    return method


def _by_groups(work):
    """The same function, which does its work once for each choice of groups: overrides of values change no list."""
    found = {}

    @functools.wraps(work)
    def create(repo, config_name, overrides_list, **named):
        groups = [each for each in overrides_list if repo.group_exists(each.key_or_group)]
        at = (config_name, *named.items(), *(each.input_line for each in groups), *_places(repo))
        if at not in found:
            found[at] = work(repo=repo, config_name=config_name, overrides_list=groups, **named)
        values = [each for each in overrides_list if each not in groups and not each.is_sweep_override()]
        known = found[at]
        return dataclasses.replace(known, config_overrides=[*known.config_overrides, *values])

    return create
