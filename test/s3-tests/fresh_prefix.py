# SPDX-License-Identifier: Apache-2.0
"""A plugin for pytest: each test of ceph/s3-tests names its buckets anew.

The suite empties all buckets of a process before each test. One that cannot be
emptied, because an object in it is locked for years, would fail every test
that the process runs after it; so it fails its own alone.
"""

import pytest
from s3tests import functional


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if functional.prefix is not None:
        functional.prefix = functional.choose_bucket_prefix(template="s3t-{random}-")
