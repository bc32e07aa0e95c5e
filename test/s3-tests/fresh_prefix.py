# SPDX-License-Identifier: Apache-2.0
"""A plugin for pytest: each test of ceph/s3-tests uses new bucket names.

The suite empties all buckets of a process before each test. A bucket with an object that is locked for years cannot
be emptied, and would fail every later test of the process. With new names, only its own test fails.
"""

import pytest
from s3tests import functional


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if functional.prefix is not None:
        functional.prefix = functional.choose_bucket_prefix(template="s3t-{random}-")
