"""Several processes of one program, as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(module, arguments, n):
    """Start `python -m MODULE ARGUMENTS` n times, with the variables of each rank."""
    shared = {"WORLD_SIZE": n, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": 1}
    processes = []
    for rank in range(n):
        own = {key: str(value) for key, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        environment = {**os.environ, **own, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", module, *arguments]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    return processes
