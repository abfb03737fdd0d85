"""The YAML of a job file as a tree: what YAML would swallow silently is refused, and every field has its line."""

from collections.abc import Sequence

import yaml

from compass_abs.model import CompassError

#: Values of a job file with its aliases written out: far above any honest one, far below what costs seconds.
MOST_VALUES = 20_000


class JobSpecError(CompassError):
    """A job file that makes no sense: where, what, and what was expected."""


def check_tree(tree: yaml.Node, source: str) -> None:
    """Refuses a field that is there twice, and aliases that would blow up a small file."""
    _Sizes(source).of(tree)


class _Sizes:
    """How many values each node stands for, its aliases written out."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[int, int] = {}
        self._open: set[int] = set()

    def of(self, node: yaml.Node) -> int:
        """The size of a node; raises where it makes no sense."""
        if id(node) in self._known:
            return self._known[id(node)]
        if id(node) in self._open:
            raise self._error(node, "an alias stands for something that it is a part of")
        self._open.add(id(node))
        size = 1 + sum(self.of(child) for child in self._children(node))
        if size > MOST_VALUES:
            raise self._error(node, f"with its aliases written out it holds more than {MOST_VALUES} values")
        self._open.discard(id(node))
        self._known[id(node)] = size
        return size

    def _children(self, node: yaml.Node) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if not isinstance(node, yaml.MappingNode):
            return []
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise self._error(key, f"field {key.value!r} is there a second time; leave one out")
                seen.add((key.tag, key.value))
        return [part for pair in node.value for part in pair]

    def _error(self, node: yaml.Node, what: str) -> JobSpecError:
        return JobSpecError(f"{self._source}, line {node.start_mark.line + 1}: {what}")


def line_of(tree: yaml.Node, where: Sequence[str | int]) -> int:
    """Line of the deepest part of a path that the text has."""
    node, line = tree, tree.start_mark.line + 1
    for part in where:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    node, line = value, key.start_mark.line + 1
                    break
            else:
                return line
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line
