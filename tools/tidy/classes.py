"""How many public methods a class has: a ratchet. Constructors, destructors and operators do not count.

And each class of a namespace is defined once: two of one name are one to the linker, whose functions for the one may be
called for the other."""

import collections


def findings(tree, tables):
    limit, listed = tables.PUBLIC_METHODS_MAX, tables.PUBLIC_METHODS
    counts, places = counted(tree)
    for name, count in sorted(counts.items()):
        path, line = places[name]
        if count > max(limit, listed.get(name, 0)):
            yield path, line, f"{name} has {count} public methods; the limit is {max(limit, listed.get(name, 0))}"
    for name, number in sorted(listed.items()):
        count = counts.get(name, 0)
        if count < number:
            present = f"{count}: lower its number" if count > limit else f"{count}: remove it from the table"
            yield "tools/tidy/tables.py", 1, f"PUBLIC_METHODS says {number} of {name}, which has {present}"
    yield from defined_twice(tree)


def defined_twice(tree):
    """Classes of src/ outside of anonymous namespaces that two files define."""
    first = {}
    for tag in tree.tags:
        if tag.path.startswith("src/") and tag.kind in {"class", "struct"} and tag.scope and not {"__anon"} & {part[:6] for part in tag.scope.split("::")}:
            name = f"{tag.scope}::{tag.name}"
            if first.setdefault(name, tag.path) != tag.path:
                yield tag.path, tag.line, f"{name} is defined in {first[name]} as well"


def counted(tree):
    """Public methods that each class of src/ declares, by the class's qualified name, and where the class stands."""
    counts: collections.Counter = collections.Counter()
    places = {}
    for tag in tree.tags:
        if not tag.path.startswith("src/"):
            continue
        if tag.kind in {"class", "struct"}:
            places["::".join(filter(None, (tag.scope, tag.name)))] = (tag.path, tag.line)
        elif tag.access == "public" and tag.scope_kind in {"class", "struct"}:
            own = tag.scope.split("::")[-1]
            if tag.name.lstrip("~") != own and not tag.name.startswith(("operator", "__anon")):
                counts[tag.scope] += 1
                places.setdefault(tag.scope, (tag.path, tag.line))
    return counts, places
