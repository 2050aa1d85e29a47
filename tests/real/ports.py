"""Ports for programs that bind them late: an engine listens half a minute after its command line was written.

A port that was only found free is anybody's until then. So it is held, from before the program starts until nobody
needs it any more, its restarts included: by a socket that never listens and has SO_REUSEADDR, beside which a program
that sets this too (uvicorn, asyncio, the gateway) may listen. And it is chosen below the ports that the kernel gives
to those who ask for any, so that no connection of the test's own has it by chance.
"""
import random
import socket
import weakref

import wire

LOWEST = 10_000
# The kernel's default of ip_local_port_range.
EPHEMERAL = 32_768
TRIES = 100


def lowest_ephemeral(at="/proc/sys/net/ipv4/ip_local_port_range"):
    try:
        with open(at, encoding="ascii") as f:
            return int(f.read().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL


class HeldPort:
    """`number` is kept from everybody who asks for any port, or for this one without SO_REUSEADDR, until the holder
    is dropped or let_go() is called. OSError if there is none."""

    def __init__(self, host="127.0.0.1"):
        end = lowest_ephemeral()
        # The last is whatever the kernel has: a machine may have no ports below.
        candidates = [random.randrange(LOWEST, end) for _ in range(TRIES)] if end > LOWEST else []
        for candidate in [*candidates, 0]:
            holder = socket.socket(wire.family_of(host))
            try:
                # Without SO_REUSEADDR yet: two holders would get the same one.
                holder.bind((host, candidate))
            except OSError:
                holder.close()
                if candidate == 0:
                    raise
                continue
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.number = holder.getsockname()[1]
            self.let_go = weakref.finalize(self, holder.close)
            return
