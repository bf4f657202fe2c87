"""Rules for all tests."""

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked ``gpu`` where there is no CUDA device."""
    if item.get_closest_marker("gpu") is not None:
        import torch  # here, so that tests without tensors start without loading it

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
