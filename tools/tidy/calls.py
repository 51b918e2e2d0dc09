"""Which files of a folder call which, from ctags and the text of function bodies. A folder in ACYCLIC has no circle.

A node is a stem: x.h and x.cc are one file here. Tests and headers named test_* are left out. A call is `name(`,
`name<...>(`, `&Scope::name` or, of a free function, `&name` inside a function body (lambdas included), where some file
of the folder defines a function of that name with a body. Which definition it means:

1. `Scope::name` means a definition whose scope ends in Scope.
2. What is unqualified means the same class, its enclosing scopes or a free function.
3. `receiver.name` and `receiver->name`: the receiver's type is looked up by its declaration (a parameter or variable
   of the function, a member in a file that the caller includes). With a type, the call means that class or one of its
   bases, or nothing in the folder. Without one (`auto`, the result of a call), any class may be meant, unless standard
   containers have a function of that name too.
4. A file can only call what it includes, transitively: the definition or a prototype of it must be in a file that the
   caller's includes reach. What is in an anonymous namespace of a source is called from that source alone.

Where several definitions remain, the caller's own file is meant if it has one, and else each of them. A call through
an interface whose functions have no body here leads nowhere, as it should: that is how a circle is avoided.
"""

import collections
import dataclasses
import pathlib
import re

from tidy.sources import Tag, is_test, line_of

_CALL = re.compile(r"(?P<before>(?:(?:\b\w+|\)|\])\s*(?:\.|->)\s*)?)(?P<scope>(?:\b\w+\s*::\s*)*)\b(?P<name>[a-z_]\w*)\s*(?:<[^;(){}]*>)?\s*\(")
_POINTER = re.compile(r"(?<!&)&(?P<scope>(?:\w+\s*::\s*)*)(?P<name>[a-z_]\w*)\b(?=\s*[,;)}])")
_KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "decltype", "noexcept", "alignof", "static_assert", "catch", "requires"}
_NO_TYPES = {"const", "constexpr", "return", "else", "new", "delete", "case", "co_await", "co_return", "co_yield", "not", "and", "or", "goto", "in"}
_UNKNOWN = {"auto"}
# Names that the receiver's type alone tells from those of the standard library.
_COMMON = set("""append assign at back begin bind c_str capacity cbegin cend clear contains count data detach emplace emplace_back
end erase error extract find first front get has_value insert join last length load lock lower_bound max merge min name notify_all notify_one
pop pop_back pop_front push push_back push_front rbegin release rend reserve reset resize second size splice start stop store str substr swap
test top try_emplace unlock upper_bound value value_or wait empty""".split())
_POINTERS = {"optional", "unique_ptr", "shared_ptr", "reference_wrapper", "not_null"}


@dataclasses.dataclass
class Graph:
    """`edges[a][b]` is one call of b's function from a: (path, line, name)."""

    nodes: list[str]
    edges: dict[str, dict[str, tuple[str, int, str]]]

    def groups(self) -> list[list[str]]:
        """Strongly connected groups, those first that call nothing outside themselves (Tarjan's algorithm)."""
        index, low, stack, out = {}, {}, [], []

        def visit(node):
            index[node] = low[node] = len(index)
            stack.append(node)
            for other in sorted(self.edges[node]):
                if other not in index:
                    visit(other)
                    low[node] = min(low[node], low[other])
                elif other in stack:
                    low[node] = min(low[node], index[other])
            if low[node] == index[node]:
                at = stack.index(node)
                out.append(sorted(stack[at:]))
                del stack[at:]

        for node in self.nodes:
            if node not in index:
                visit(node)
        return out


def findings(tree, tables):
    for folder in sorted(tables.ACYCLIC):
        graph = graph_of(tree, f"src/{folder}")
        for group in graph.groups():
            if len(group) > 1:
                for caller, called in circle_of(graph, group):
                    path, line, name = graph.edges[caller][called]
                    yield path, line, f"a circle of calls among {', '.join(group)}: here {caller} calls {name} of {called}"


def circle_of(graph: Graph, group: list[str]):
    """The edges of a shortest circle through the group's first file."""
    start, before = group[0], {}
    queue = collections.deque([start])
    while queue:
        node = queue.popleft()
        for other in sorted(set(graph.edges[node]) & set(group)):
            if other == start:
                edges = [(node, start)]
                while node != start:
                    edges.append((before[node], node))
                    node = before[node]
                return edges[::-1]
            if other not in before:
                before[other] = node
                queue.append(other)
    return []


def described(graph: Graph) -> str:
    lines = []
    for group in graph.groups():
        if len(group) > 1:
            lines.append(f"CIRCLE of {len(group)} files; these calls close one:")
            for caller, called in circle_of(graph, group):
                path, line, name = graph.edges[caller][called]
                lines.append(f"  {caller} -> {called}: {name} ({path}:{line})")
        for node in group:
            lines.append(f"{node}: {', '.join(sorted(graph.edges[node])) or '-'}")
    return "\n".join(lines)


def graph_of(tree, folder: str) -> Graph:
    """The graph of what lies in the folder and below it. `folder` is relative to the root of the checkout."""
    return _Builder(tree, folder.rstrip("/")).graph()


@dataclasses.dataclass(frozen=True)
class _Definition:
    tag: Tag
    node: str
    seen_in: frozenset[str]  # files that declare or define it


class _Builder:
    def __init__(self, tree, folder: str):
        self.tree, self.folder = tree, folder
        self.paths = [path for path in tree.cpp if path.startswith(folder + "/") and not is_test(path)
                      and not pathlib.PurePath(path).name.startswith("test_")]
        self.bases = {tag.name: set(tag.bases) for path in self.paths for tag in tree.tags_of[path] if tag.kind in {"class", "struct"}}
        self.reached: dict[str, frozenset[str]] = {}
        self.types: dict[tuple[str, str], set[str]] = {}
        self.by_name = self._definitions()

    def node(self, path: str) -> str:
        return str(pathlib.PurePath(path).relative_to(self.folder).with_suffix(""))

    def _definitions(self) -> dict[str, list[_Definition]]:
        declared = collections.defaultdict(set)
        for path in self.paths:
            for tag in self.tree.tags_of[path]:
                if tag.kind in {"prototype", "function"}:
                    declared[_key(tag)].add(path)
        found = collections.defaultdict(list)
        for path in self.paths:
            for tag in self.tree.tags_of[path]:
                constructs = tag.name.lstrip("~") == tag.scope.split("::")[-1]
                if tag.kind == "function" and not tag.name.startswith(("__anon", "operator")) and not constructs:
                    found[tag.name].append(_Definition(tag, self.node(path), frozenset({path} if _local(tag) else declared[_key(tag)])))
        return found

    def includes(self, path: str) -> frozenset[str]:
        """The file and what it includes, transitively."""
        if path not in self.reached:
            reached, left = set(), [path]
            while left:
                at = left.pop()
                if at not in reached and at in self.tree.tags_of:
                    reached.add(at)
                    left.extend("src/" + name for name in re.findall(r'^#\s*include "([^"]+)"', self.tree.text(at), re.M))
            self.reached[path] = frozenset(reached)
        return self.reached[path]

    def graph(self) -> Graph:
        nodes = sorted({self.node(path) for path in self.paths})
        edges: dict[str, dict] = {node: {} for node in nodes}
        for path in self.paths:
            code = self.tree.code(path)
            starts = [0]
            for line in code.split("\n"):
                starts.append(starts[-1] + len(line) + 1)
            functions = [tag for tag in self.tree.tags_of[path] if tag.kind == "function"]
            within = lambda line: [tag for tag in functions if tag.line <= line <= tag.end]
            for pattern in (_CALL, _POINTER):
                for match in pattern.finditer(code):
                    if match["name"] not in self.by_name or match["name"] in _KEYWORDS:
                        continue
                    line = line_of(code, match.start("name"))
                    around = within(line)
                    if pattern is _CALL and not around:
                        continue  # A prototype, or a default value outside of functions.
                    outer = around[0] if around else None
                    if outer and match.start("name") < self._body(code, starts, outer):
                        continue  # The name of the definition itself.
                    text = code[starts[outer.line - 1] : starts[outer.end]] if outer else ""
                    if pattern is _POINTER and not match["scope"] and _declared(text, match["name"], "."):
                        continue  # The address of a variable of that name.
                    for definition in self.meant(path, match, outer, text):
                        if definition.node != self.node(path):
                            edges[self.node(path)].setdefault(definition.node, (path, line, match["name"]))
        return Graph(nodes, edges)

    @staticmethod
    def _body(code: str, starts: list[int], tag: Tag) -> int:
        """Where the arguments of the definition begin."""
        begin = starts[tag.line - 1]
        head = re.compile(r"\b" + re.escape(tag.name) + r"\s*\(").search(code, begin, starts[tag.end])
        return head.end() if head else begin

    def meant(self, path: str, match, outer: Tag | None, text: str) -> list[_Definition]:
        """The definitions that a call may mean; see the module's docstring."""
        reached = self.includes(path)
        candidates = [d for d in self.by_name[match["name"]] if d.seen_in & reached]
        scope = re.sub(r"\s", "", match["scope"]).rstrip(":")
        before = match.groupdict().get("before") or ""
        receiver = re.match(r"(\w+)\s*(\.|->)", before)
        if scope:
            candidates = [d for d in candidates if ("::" + d.tag.scope).endswith("::" + scope)]
        elif match.re is _POINTER:
            candidates = [d for d in candidates if d.tag.scope_kind not in {"class", "struct"}]
        elif receiver and receiver[1] == "this" or not before:
            inside = outer.scope if outer else ""
            candidates = [d for d in candidates if d.tag.scope_kind not in {"class", "struct"} or self._within(inside, d.tag.scope)]
        else:
            candidates = [d for d in candidates if d.tag.scope_kind in {"class", "struct"}]
            types = self.types_of(path, receiver[1], receiver[2], text) if receiver else set()
            if types:
                candidates = [d for d in candidates if d.tag.scope.split("::")[-1] in types]
            elif match["name"] in _COMMON:
                candidates = []
        own = [d for d in candidates if d.node == self.node(path)]
        return own or candidates

    def _within(self, inside: str, scope: str) -> bool:
        """Whether code in scope `inside` names members of the class `scope` without qualification."""
        if inside == scope or inside.startswith(scope + "::"):
            return True
        return scope.split("::")[-1] in self._with_bases(set(inside.split("::")))

    def _with_bases(self, types: set[str]) -> set[str]:
        found, left = set(), list(types)
        while left:
            at = left.pop()
            if at not in found:
                found.add(at)
                left.extend(self.bases.get(at, ()))
        return found

    def types_of(self, path: str, receiver: str, access: str, text: str) -> set[str]:
        """Classes that the receiver may have, with their bases; empty if that is unknown."""
        declared = _declared(text, receiver, access)
        if not declared:
            key = (path, receiver + access)
            if key not in self.types:
                found = set()
                for other in self.includes(path):
                    if other in self.tree.tags_of and (other.endswith(".h") or other == path):
                        found |= _declared(self.tree.code(other), receiver, access)
                self.types[key] = found
            declared = self.types[key]
        return set() if declared & _UNKNOWN else self._with_bases(declared)


def _key(tag: Tag):
    return (tag.scope, tag.name)


def _local(tag: Tag) -> bool:
    """Whether only the tag's own file sees it."""
    return "__anon" in tag.scope and not tag.path.endswith((".h", ".cuh"))


def _declared(text: str, name: str, access: str) -> set[str]:
    """The types with which `name` is declared in the text; of pointers and optionals what they point to, for `->`."""
    if name not in text:
        return set()
    found = set()
    pattern = r"(?P<type>\b[A-Za-z_][\w:]*)\s*(?P<inner><[^;(){}]*?>)?\s*[&*]*\s*(?:const\s+)?(?<![\w.>])" + re.escape(name) + r"\s*[;,)=({\[:]"
    for match in re.finditer(pattern, text):
        outer = match["type"].split("::")[-1]
        if outer in _NO_TYPES:
            continue
        if access == "->" and outer in _POINTERS and match["inner"]:
            found |= set(re.findall(r"\w+", match["inner"]))
        else:
            found.add(outer)
    return found
