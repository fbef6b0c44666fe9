"""The description of held-out documents."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.stages.heldout import groupings
from tokenizer.errors import UserError


def test_descriptions_of_other_documents_are_rejected(tmp_path):
    arrays = {"bytes": np.array([3, 5]), "source": np.zeros(2, np.int32)}
    np.savez(tmp_path / "documents.npz", allow_pickle=False, **arrays)
    artifact = SimpleNamespace(path=tmp_path, contents=SimpleNamespace(names={"source": ["web"]}))
    assert groupings(artifact, np.array([3, 5]))["source"].names == ("web",)
    with pytest.raises(UserError, match="describes other documents"):
        groupings(artifact, np.array([3, 6]))
