"""Bytes over sockets, for what no client library sends."""

import re
import socket
import time
import urllib.parse


def connect(server, timeout=10, receive_buffer=None):
    place = urllib.parse.urlsplit(server.url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(timeout)
    connection.connect((place.hostname, place.port))
    return connection


def until_closed(connection, seconds=10):
    """What the server sends until it closes. Fails where it goes on for longer."""
    got = b""
    until = time.monotonic() + seconds
    while True:
        connection.settimeout(max(until - time.monotonic(), 0.01))
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            return got
        if not part:
            return got
        got += part


def closed_after(connection, seconds):
    """How long the server took to close, at most so many seconds."""
    began = time.monotonic()
    until_closed(connection, seconds)
    return time.monotonic() - began


def statuses(answers):
    """Of each answer in it, in order."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answers)]
