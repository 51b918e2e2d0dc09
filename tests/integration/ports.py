"""Ports for servers of tests."""

import random
import socket

given = set()


def free_port(count=1):
    """The first of `count` ports in a row that nothing listens on, of those that the kernel gives to nobody: it gives a
    connection that goes out the port of a server that is about to come back. None is given twice to one test run."""
    while True:
        first = random.randrange(20000, 30000 - count)
        wanted = range(first, first + count)
        if given.intersection(wanted):
            continue
        try:
            for port in wanted:
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", port))
        except OSError:
            continue
        given.update(wanted)
        return first
