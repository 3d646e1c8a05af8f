"""Skip the folder where the kernels cannot be built."""

import pytest

from draftproof import native


@pytest.fixture(autouse=True)
def _kernels():
    if not native.available():
        pytest.skip(f"native kernels: {native.reason()}")


@pytest.fixture
def two_threads():
    """Set the thread count by hand; two threads afterwards."""
    yield native.set_threads
    native.set_threads(2)
