"""Devices of the tests in this folder, which compare a GPU with the CPU."""

import pytest
import torch


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param
