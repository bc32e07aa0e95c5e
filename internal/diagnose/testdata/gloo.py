# SPDX-License-Identifier: Apache-2.0
"""Two ranks that add up gradients with gloo, over and over, as data-parallel training does. The argument is the seconds."""

import os
import sys
import time

import torch
import torch.distributed

BYTES = 2 << 20


def rank(number: int, port: str, seconds: float) -> None:
    """Add up gradients until rank 0 says that the time is over."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=number, world_size=2)
    gradients = torch.ones(BYTES // 4)
    until = time.monotonic() + seconds
    over = torch.zeros(1)
    while over.item() == 0:
        torch.distributed.all_reduce(gradients)
        gradients /= 2  # the step, which is short
        over[0] = float(number == 0 and time.monotonic() >= until)
        torch.distributed.all_reduce(over)
    assert gradients.min() == 1 and gradients.max() == 1
    torch.distributed.destroy_process_group()


def main() -> None:
    """Start rank 1 as a child, which has imported torch already, and be rank 0."""
    seconds = float(sys.argv[1])
    # The namespace is empty, so that any port is free.
    child = os.fork()
    rank(1 if child == 0 else 0, "29500", seconds)
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
