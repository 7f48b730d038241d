"""The demo's source files, each with one place to complete. Written for it and chosen for showing well: a tiny model
gets idioms right. What it does on code that nobody chose, `specter bench` measures.
"""

from __future__ import annotations

from typing import NamedTuple


class DemoHole(NamedTuple):
    """The text around a cursor."""

    path: str
    prefix: str
    suffix: str


_CURSOR = "‸"
_SOURCES = {
    "readers.py": """\
import json


def read_settings(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_users(path):
    with open(‸
        return [json.loads(line) for line in file]
""",
    "user.py": """\
class User:
    def __init__(self, name, email, age):
        self.name = name
        self.email = email
        self.age = age

    def to_dict(self):
        return {
            "name": self.name,
            ‸
        }

    @classmethod
    def from_dict(cls, data):
        return cls(data["name"], data["email"], data["age"])
""",
    "resize.py": """\
import argparse

parser = argparse.ArgumentParser(description="Resize pictures.")
parser.add_argument("--width", type=int, default=800, help="in pixels")
parser.add_argument("--height", type=int, ‸
args = parser.parse_args()
""",
    "repository.ts": """\
export class Repository<T> {
  private items = new Map<string, T>();

  get(key: string): T | undefined {
    return this.items.get(key);
  }

  set(key: string, value: T): void {
    ‸
  }

  delete(key: string): boolean {
    return this.items.delete(key);
  }
}
""",
    "users.js": """\
router.get('/users/:id', async (req, res) => {
  const user = await users.find(req.params.id);
  res.json(user);
});

router.put('/users/:id', async (req, res) => {
  const user = ‸
  await user.update(req.body);
  res.json(user);
});
""",
}


def demo_holes() -> list[DemoHole]:
    """In the order in which they are shown."""
    cut = {path: source.partition(_CURSOR) for path, source in _SOURCES.items()}
    return [DemoHole(path, prefix, suffix) for path, (prefix, _, suffix) in cut.items()]
