"""The description of held-out documents."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.stages.heldout import groupings
from tokenizer.errors import UserError


def test_descriptions_of_other_documents_are_rejected(tmp_path: Path) -> None:
    arrays = {"bytes": np.array([3, 5]), "source": np.zeros(2, np.int32)}
    np.savez(tmp_path / "documents.npz", allow_pickle=False, **cast("Any", arrays))
    artifact = cast("Any", SimpleNamespace(path=tmp_path, contents=SimpleNamespace(names={"source": ["web"]})))
    assert groupings(artifact, np.array([3, 5]))["source"].names == ("web",)
    with pytest.raises(UserError, match="describes other documents"):
        groupings(artifact, np.array([3, 6]))
