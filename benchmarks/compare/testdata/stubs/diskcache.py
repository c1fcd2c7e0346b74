"""Stands in for diskcache: remembers the texts it was shown, while it is open."""

import threading


class Cache:
    def __init__(self, directory):
        self.seen = set()
        self.lock = threading.Lock()

    def get(self, key):
        return None

    def add(self, text):
        """Says whether text was there."""
        with self.lock:
            there = text in self.seen
            self.seen.add(text)
            return there

    def close(self):
        pass
