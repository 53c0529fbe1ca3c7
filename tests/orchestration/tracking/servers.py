"""Servers of MLflow that are there, and no more."""

from http.server import BaseHTTPRequestHandler
from typing import Any


class Health(BaseHTTPRequestHandler):
    """A server that is there, whatever else it has to do; it wants a password."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass
