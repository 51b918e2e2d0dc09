"""What the rules read: the files of a checkout, their text without comments, and what ctags finds in them."""

import dataclasses
import functools
import json
import pathlib
import re
import subprocess

CPP = {".h", ".cc", ".cu", ".cuh"}
# Folders that hold C++ of ours.
CPP_FOLDERS = ("src", "tests", "fuzz", "bench", "tools")
_RAW = r'R"(?P<mark>[^ ()\\\t\n]*)\((?s:.*?)\)(?P=mark)"'
_NOISE = re.compile(rf"//[^\n]*|/\*(?s:.*?)\*/|{_RAW}|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'")


def strip_comments(text: str) -> str:
    """The text with comments gone and strings empty, line for line."""

    def blank(match):
        kept = '""' if '"' in match[0][:2] and match[0][0] != "/" else ""
        return kept + "\n" * match[0].count("\n")

    return _NOISE.sub(blank, text)


@dataclasses.dataclass(frozen=True)
class Tag:
    """A function, prototype, class or struct that ctags found; `line` to `end` is where it stands."""

    path: str
    name: str
    kind: str
    line: int
    end: int
    scope: str  # "heddle::core::ManagerCore", or "" outside of namespaces
    scope_kind: str
    access: str  # "public" and so on for what is declared inside a class, else ""
    bases: tuple[str, ...]  # of a class: the names that it inherits from


class Tree:
    """A checkout. Paths are strings relative to its root, with slashes."""

    def __init__(self, root: pathlib.Path):
        self.root = root

    @functools.cached_property
    def committed(self) -> list[str]:
        """Files that git knows or would take; all files where there is no git."""
        listed = subprocess.run(["git", "-C", str(self.root), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
        if listed.returncode == 0 and listed.stdout:
            return sorted(path for path in set(listed.stdout.splitlines()) if (self.root / path).is_file())
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    @functools.cached_property
    def cpp(self) -> list[str]:
        """Headers and sources of C++ and CUDA."""
        return [path for path in self.committed if pathlib.Path(path).suffix in CPP and path.split("/")[0] in CPP_FOLDERS]

    @functools.lru_cache(maxsize=None)
    def text(self, path: str) -> str:
        return (self.root / path).read_text()

    @functools.lru_cache(maxsize=None)
    def code(self, path: str) -> str:
        """The text without comments and strings; its lines are those of the file."""
        return strip_comments(self.text(path))

    @functools.cached_property
    def tags(self) -> list[Tag]:
        """Functions, prototypes, classes and structs of `cpp`, by universal-ctags."""
        command = ["ctags", "-f", "-", "--sort=no", "--languages=C++", "--langmap=C++:+.h.cu.cuh", "--kinds-C++=fpcs",
                   "--fields=+neKSsai", "--output-format=json",
                   # CUDA kernels are functions behind a macro.
                   "-D", "HEDDLE_KERNEL(name,params,threads)=void name(const params& p)", "-L", "-"]
        done = subprocess.run(command, cwd=self.root, input="\n".join(self.cpp), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"tidy: ctags failed; it must be universal-ctags with JSON:\n{done.stderr}")
        return [_tag(json.loads(line)) for line in done.stdout.splitlines()]

    @functools.cached_property
    def tags_of(self) -> dict[str, list[Tag]]:
        """The tags by path."""
        found: dict[str, list[Tag]] = {path: [] for path in self.cpp}
        for tag in self.tags:
            found[tag.path].append(tag)
        return found


def _tag(entry: dict) -> Tag:
    bases = tuple(re.sub(r"<.*", "", base).strip().split("::")[-1] for base in entry.get("inherits", "").split(",") if base.strip())
    return Tag(entry["path"], entry["name"], entry["kind"], entry["line"], entry.get("end", entry["line"]), entry.get("scope", ""),
               entry.get("scopeKind", ""), entry.get("access", ""), bases)


def folder_of(path: str) -> str:
    """The layer of src/ that a path lies in, or ""."""
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else ""


def is_test(path: str) -> bool:
    return pathlib.Path(path).stem.endswith("_test")


def line_of(code: str, index: int) -> int:
    return code.count("\n", 0, index) + 1
