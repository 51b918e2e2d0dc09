"""tools/tidy.py finds what it is for: each rule is given a small checkout with one fault in it, and one without."""

import pathlib
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from tidy import calls, citations, classes, coroutines, files, functions, layers, live, prose, tables, words  # noqa: E402
from tidy.sources import Tree, strip_comments  # noqa: E402


def strict(**changed):
    """The tables as they are without any exception, and with what is `changed`."""
    plain = {name: value for name, value in vars(tables).items() if name.isupper()}
    plain |= {"TESTED_BY": {}, "PUBLIC_METHODS": {}, "PAGES": {}, "ACYCLIC": set(), "LAYERS": {}, "WORDS": {}}
    return types.SimpleNamespace(**(plain | changed))


@pytest.fixture
def checkout(tmp_path):
    """Writes files, {path: text}, and returns them as a Tree."""

    def write(contents):
        for path, text in contents.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return Tree(tmp_path)

    return write


def said(rule, tree, **changed):
    return [f"{path}:{line}: {message}" for path, line, message in rule.findings(tree, strict(**changed))]


# Sizes

LONG_BODY = "\n".join("  f();" for _ in range(70))


@pytest.mark.parametrize(
    "head",
    [
        "void f() {",
        "std::vector<int> g(int first,\n                   int second) {",
        "template <class T>\nResult<T> Some::deeply::\n    named(const T& first,\n          std::map<int, int> second) const noexcept {",
        "Some::Some(int a,\n           int b)\n    : a_(a),\n      b_{b} {",
        "TEST(Group, Case) {",
        "HEDDLE_KERNEL(heddle_fill, Params, 256) {",
        "template <class... Args>\nvoid add(Family& family,\n         const Args&... args) {",
    ],
)
def test_a_long_function_is_found_however_its_signature_is_wrapped(checkout, head):
    tree = checkout({"src/base/x.cc": f"void before() {{}}\n\n{head}\n{LONG_BODY}\n}}\n\nvoid after() {{}}\n"})
    found = said(functions, tree)
    assert len(found) == 1 and "src/base/x.cc:" in found[0] and "the limit is 70" in found[0]


def test_functions_within_the_limit_and_long_classes_pass(checkout):
    body = "\n".join("  f();" for _ in range(68))
    members = "\n".join(f"  void f{n}() {{ g(); }}" for n in range(90))
    tree = checkout({"src/base/x.cc": f"void f() {{\n{body}\n}}\n\nstruct S {{\n{members}\n}};\n"})
    assert said(functions, tree) == []


def test_long_lines_and_files_are_found(checkout):
    tree = checkout({"src/base/x.h": "int a;\n" * 601, "tests/some/y.h": "int a;\n// " + "x" * 98 + "\n", "src/base/z.h": "int a;\n" * 600})
    assert said(files, tree) == ["src/base/x.h:1: 601 lines; the limit is 600", "tests/some/y.h:2: longer than 100 columns"]


# What a file may say

@pytest.mark.parametrize(
    "path, text, message",
    [
        ("src/core/x.h", "auto t = std::chrono::steady_clock::now();", "in replayable code"),
        ("src/sim/x.h", "#include <mutex>", "in replayable code"),
        ("src/agent/x.h", "inline void f() { throw 1; }", "is banned"),
        ("src/agent/x.h", "thread_local int x;", "is banned"),
        ("src/agent/x.h", "#include <cuda.h>", "vendor headers"),
        ("src/agent/x.cc", "", "no x_test.cc beside it"),
    ],
)
def test_what_a_file_may_not_say_is_found(checkout, path, text, message):
    found = said(files, checkout({path: text + "\n"}))
    assert len(found) == 1 and message in found[0]


def test_comments_and_strings_are_no_code(checkout):
    text = '// throw\n/* throw\n throw */ const char* s = "throw // \\" throw";\nconst char* r = R"(throw\n")";\nint c = \'"\';\n'
    assert "throw" not in strip_comments(text)
    assert strip_comments(text).count("\n") == text.count("\n")
    assert said(files, checkout({"src/agent/x.h": text})) == []


def test_exceptions_for_sources_that_are_gone_are_found(checkout):
    tree = checkout({"src/agent/x.cc": "", "src/base/y.h": ""})
    assert said(files, tree, TESTED_BY={"agent/": "", "base/y.cc": "", "rpc/": ""}) == [
        "tools/tidy/tables.py:1: TESTED_BY names base/y.cc, which is not there",
        "tools/tidy/tables.py:1: TESTED_BY names rpc/, which is not there",
    ]


def test_a_fuzz_target_without_inputs_is_found(checkout):
    tree = checkout({"fuzz/fuzz_one.cc": "", "fuzz/corpus/one/a": "", "fuzz/fuzz_two.cc": ""})
    assert said(files, tree) == ["fuzz/fuzz_two.cc:1: no committed inputs in fuzz/corpus/two"]


def test_a_source_includes_its_own_header_first(checkout):
    late, first = '#include <map>\n#include "base/x.h"\n', '// Why.\n#include "base/y.h"\n#include <map>\n'
    tree = checkout({"src/base/x.h": "", "src/base/x.cc": late, "src/base/x_test.cc": first, "src/base/y.h": "", "src/base/y_test.cc": first})
    assert said(files, tree) == ["src/base/x.cc:1: its own header, base/x.h, comes first"]


# Coroutines

@pytest.mark.parametrize(
    "statement", ["if (co_await f()) {\n}", "g(co_await f({1}));", "co_await f([&] { g(); });", "auto x = a ? co_await f() : b;", "S s{co_await f()};"]
)
def test_statements_that_gcc_miscompiles_are_found(checkout, statement):
    assert len(said(coroutines, checkout({"src/rpc/x.h": f"Task run() {{\n  {statement}\n}}\n"}))) == 1


def test_plain_awaiting_passes(checkout):
    assert said(coroutines, checkout({"src/rpc/x.h": "Task run() {\n  const auto x = co_await f(1);\n  if (x) {\n    co_await g();\n  }\n}\n"})) == []


# Layers

def test_edges_that_are_not_allowed_are_found(checkout):
    tree = checkout({"src/a/x.h": '#include "b/y.h"\n', "src/b/y.h": ""})
    assert said(layers, tree, LAYERS={"a": ["b"], "b": []}) == []
    assert said(layers, tree, LAYERS={"a": [], "b": []}) == ["src/a/x.h:1: a/ may not include b/"]


def test_permissions_that_nobody_needs_are_found(checkout):
    tree = checkout({"src/a/x.h": '#include "a/z.h"\n#include "base/y.h"\n', "src/b/y.h": "", "src/c/z.h": ""})
    table = "tools/tidy/tables.py:1: LAYERS"
    assert said(layers, tree, LAYERS={"a": ["b"], "b": [], "weave": []}) == [
        f"{table} has weave, and there is no src/weave/", f"{table} does not have c", f"{table} lets a include b, which no file does"]


def test_a_circle_of_layers_is_found(checkout):
    tree = checkout({"src/a/x.h": '#include "b/y.h"\n', "src/b/y.h": '#include "a/x.h"\n', "src/c/z.h": ""})
    assert said(layers, tree, LAYERS={"a": ["b"], "b": ["a"], "c": []}) == ["tools/tidy/tables.py:1: LAYERS has a circle among a, b"]


# Policies that serve

def test_a_policy_that_only_simulations_ask_is_found(checkout):
    asked = '#include "policy/x.h"\n'
    tree = checkout({"src/policy/x.h": "", "src/policy/x_test.cc": asked, "src/sim/planes/a.cc": asked, "src/lab/b.h": asked,
                     "src/cli/plan.cc": asked, "src/core/x_test.cc": asked, "src/core/test_setup.h": asked, "bench/c.cc": asked})
    assert said(live, tree) == ["src/policy/x.h:1: no code that serves includes it; what only simulations or experiments ask lies beside them"]


def test_a_policy_is_reached_by_way_of_others(checkout):
    tree = checkout({"src/core/manager/state.h": '#include "policy/x.h"\n', "src/policy/x.h": '#include "policy/y.h"\n', "src/policy/y.h": "",
                     "src/policy/y.cc": '#include "policy/y.h"\n#include "policy/z.h"\n', "src/policy/z.h": ""})
    assert said(live, tree) == []
    unasked = checkout({"src/policy/v.h": '#include "policy/w.h"\n', "src/policy/w.h": ""})
    assert [found.split(":")[0] for found in said(live, unasked)] == ["src/policy/v.h", "src/policy/w.h"]


# Public methods

def class_of(methods: int, private: int = 0) -> str:
    public = "\n".join(f"  void f{n}();" for n in range(methods))
    hidden = "\n".join(f"  void g{n}();" for n in range(private))
    return f"namespace heddle {{\nclass Big {{\n public:\n  Big();\n  ~Big();\n  bool operator==(const Big&) const;\n{public}\n\n private:\n{hidden}\n}};\n}}\n"


def test_a_class_with_too_many_public_methods_is_found(checkout):
    tree = checkout({"src/base/x.h": class_of(26)})
    assert said(classes, tree) == ["src/base/x.h:2: heddle::Big has 26 public methods; the limit is 25"]
    assert said(classes, tree, PUBLIC_METHODS={"heddle::Big": 26}) == []
    assert said(classes, checkout({"src/base/x.h": class_of(25, 40)})) == []


def test_the_numbers_of_public_methods_only_fall(checkout):
    tree = checkout({"src/base/x.h": class_of(27)})
    assert "lower its number" in said(classes, tree, PUBLIC_METHODS={"heddle::Big": 28})[0]
    assert "the limit is 26" in said(classes, tree, PUBLIC_METHODS={"heddle::Big": 26})[0]
    assert "remove it" in said(classes, checkout({"src/base/x.h": class_of(25)}), PUBLIC_METHODS={"heddle::Big": 27})[0]


def test_two_classes_of_one_name_are_found(checkout):
    one, two = "namespace heddle::a {\nstruct Idle {\n  int x;\n};\n}\n", "namespace heddle::a {\nclass Idle {\n  int y;\n};\n}\n"
    tree = checkout({"src/a/x.h": one, "src/a/y.h": two, "src/b/z.h": two.replace("::a", "::b")})
    assert said(classes, tree) == ["src/a/y.h:2: heddle::a::Idle is defined in src/a/x.h as well"]
    hidden = "namespace heddle::a {\nnamespace {\nstruct Idle {\n  int x;\n};\n}\n}\n"
    assert said(classes, checkout({"src/a/x.h": one, "src/a/y.h": hidden, "src/a/z.h": "namespace heddle::a {\nclass Idle;\n}\n"})) == []


# Calls

HEAD = "namespace heddle {\nclass Queues;\nclass Views {\n public:\n  void look(Queues& queues);\n  int size() const;\n};\n}\n"
QUEUES = "namespace heddle {\nclass Queues {\n public:\n  void push();\n  void take_all();\n  int size() const;\n};\n}\n"


def graph(checkout, contents):
    return calls.graph_of(checkout({f"src/core/manager/{path}": text for path, text in contents.items()}), "src/core/manager")


def source(name: str, body: str, *more: str) -> str:
    included = "".join(f'#include "core/manager/{path}.h"\n' for path in (name, *more))
    return f"{included}\nnamespace heddle {{\n{body}\n}}\n"


def test_files_are_listed_after_those_that_they_call(checkout):
    found = graph(checkout, {
        "views.h": HEAD, "views.cc": source("views", "void Views::look(Queues& queues) {\n  queues.push();\n}", "queues"),
        "queues.h": QUEUES, "queues.cc": source("queues", "void Queues::push() {}"),
        "passes/plan.cc": source("views", "void plan(Views& views, Queues& queues) {\n  run([&] { views.look(queues); });\n}"),
    })
    assert calls.described(found).split("\n") == ["queues: -", "views: queues", "passes/plan: views"]


def test_a_circle_of_calls_is_found(checkout):
    contents = {
        "views.h": HEAD, "views.cc": source("views", "void Views::look(Queues& queues) {\n  queues.push();\n}", "queues"),
        "queues.h": QUEUES, "queues.cc": source("queues", "void Queues::push() {\n  Views views;\n  views.look(*this);\n}", "views"),
    }
    assert [group for group in graph(checkout, contents).groups() if len(group) > 1] == [["queues", "views"]]
    found = said(calls, checkout({}), ACYCLIC={"core/manager"})
    assert len(found) == 2 and "src/core/manager/queues.cc:7: a circle of calls among queues, views: here queues calls look of views" in found
    assert calls.described(graph(checkout, contents)).startswith("CIRCLE of 2 files")


def test_methods_of_one_class_in_many_files_call_each_other(checkout):
    impl = "namespace heddle {\nclass Impl {\n public:\n  void one();\n  void two();\n};\n}\n"
    found = graph(checkout, {"impl.h": impl, "one.cc": source("impl", "void Impl::one() {\n  two();\n}"), "two.cc": source("impl", "void Impl::two() {\n  one();\n}")})
    assert found.edges["one"].keys() == {"two"} and found.edges["two"].keys() == {"one"}


def test_a_receivers_type_tells_methods_of_one_name_apart(checkout):
    body = "int count(const Queues& queues, const std::vector<int>& others) {\n  const Queues* at = &queues;\n  return queues.size() + others.size() + at->size();\n}"
    found = graph(checkout, {
        "views.h": HEAD, "views.cc": source("views", "int Views::size() const {\n  return 1;\n}"),
        "queues.h": QUEUES, "queues.cc": source("queues", "int Queues::size() const {\n  return 1;\n}"),
        "count.cc": source("views", body, "queues"),
        "other.cc": source("views", "int other(const std::vector<int>& xs) {\n  return xs.size() + get(1).size();\n}", "queues"),
    })
    assert found.edges["count"].keys() == {"queues"}
    assert found.edges["other"] == {}


def test_what_a_file_does_not_include_it_does_not_call(checkout):
    found = graph(checkout, {
        "views.h": HEAD, "queues.h": QUEUES, "queues.cc": source("queues", "void Queues::take_all() {}"),
        "one.cc": source("views", "void one() {\n  other().take_all();\n}"), "two.cc": source("queues", "void two() {\n  other().take_all();\n}"),
    })
    assert found.edges["one"] == {} and found.edges["two"].keys() == {"queues"}


def test_what_is_local_to_a_source_is_called_there_only(checkout):
    local = "namespace {\nvoid helper() {}\n}\nvoid {}() {{\n  helper();\n}}"
    found = graph(checkout, {"queues.h": QUEUES, "one.cc": source("queues", local.replace("{}() {{", "one() {").replace("}}", "}")),
                             "two.cc": source("queues", "void two() {\n  helper();\n}")})
    assert found.edges["one"] == {} and found.edges["two"] == {}


def test_a_function_that_is_handed_on_counts_as_called(checkout):
    queues = QUEUES.replace("class", "void drain();\nclass", 1)
    found = graph(checkout, {"queues.h": queues, "queues.cc": source("queues", "void Queues::push() {}\nvoid drain() {}"),
                             "one.cc": source("queues", "void one() {\n  each(&Queues::push);\n}"),
                             "two.cc": source("queues", "void two() {\n  each({&drain, nullptr});\n}"),
                             "three.cc": source("queues", "void three(int drain) {\n  each(&drain);\n}")})
    assert found.edges["one"].keys() == {"queues"} and found.edges["two"].keys() == {"queues"}
    assert found.edges["three"] == {}


def test_a_virtual_call_leads_nowhere(checkout):
    sink = "namespace heddle {\nclass Sink {\n public:\n  virtual void put() = 0;\n};\nvoid run(Sink& sink);\n}\n"
    found = graph(checkout, {"sink.h": sink, "sink.cc": source("sink", "void run(Sink& sink) {\n  sink.put();\n}"),
                             "file.h": source("sink", "class File : public Sink {\n public:\n  void put() override;\n};").replace('"core/manager/sink.h"\n', '"core/manager/sink.h"\n', 1),
                             "file.cc": source("file", "void File::put() {}\nvoid both(File& file) {\n  run(file);\n}", "sink")})
    assert found.edges["sink"] == {} and found.edges["file"].keys() == {"sink"}


def test_the_circle_of_a_known_folder_is_found(checkout):
    """Of the agent's core as it stands: a method in one file calls one in another, which calls back."""
    folder = "src/core"
    tree = checkout({f"{folder}/{path.name}": path.read_text() for path in (ROOT / folder).glob("agent_*") if not path.stem.endswith("_test")})
    assert any({"agent_core", "agent_exchange"} <= set(group) for group in calls.graph_of(tree, folder).groups())


def test_policies_call_each_other_in_order():
    assert all(len(group) == 1 for group in calls.graph_of(Tree(ROOT), "src/policy").groups())


# Documents

def test_cited_documents_are_there(checkout):
    tree = checkout({"docs/decisions/0001-why.md": "", "docs/a.md": "", "src/base/x.h": "// docs/a.md, decision 1, docs/decisions/0001 and docs/decisions/0001-why.md\n",
                     "tools/y.py": "# docs/b.md\n# decisions/0007\n# See decision 8.\n"})
    assert said(citations, tree) == ["tools/y.py:1: there is no docs/b.md", "tools/y.py:2: there is no decision 7 in docs/decisions/",
                                     "tools/y.py:3: there is no decision 8 in docs/decisions/"]


# Prose

def test_sentences_are_counted_as_people_read_them():
    text = ("# A heading that is no sentence\n\nOne two three `code with many words. And stops` five. Six seven\neight, e.g. nine!\n"
            "- An item (with [a link](https://x.y/z)).\n- Another\n  item\n\n| a | table |\n```\ncode here. Not counted.\n```\n<!-- Nor\nthis. -->\nv1.2 is one\n")
    page = prose.read(text, 120)
    assert page.sentences == [(3, 5), (3, 5), (5, 5), (6, 2), (15, 3)]
    assert page.long_lines == []


def test_pages_that_read_badly_are_found(checkout):
    wordy = " ".join(["word"] * 41) + ".\n" + "Short one.\n" * 9
    tree = checkout({"docs/long.md": "\n".join(wordy.split(" ")), "docs/wide.md": "x" * 121 + "\n", "docs/linked.md": f"[x]({'y' * 130})\n\n| {'z' * 130} |\n| --- |\n",
                     "docs/mean.md": "one " * 20 + "end.\n"})
    assert said(prose, tree) == [
        "docs/long.md:1: a sentence of 41 words; the limit is 40",
        "docs/mean.md:1: sentences have 21.0 words in the mean; the limit is 18",
        "docs/wide.md:1: a line of prose longer than 120 columns",
    ]


def test_tables_have_heads_and_short_cells(checkout):
    table = "| a | b |\n| --- | --- |\n| c | " + "word `of many words` " * 30 + "|\n"
    tree = checkout({"docs/fits.md": table, "docs/long.md": table.replace("| c", "| " + "word " * 61),
                     "docs/parted.md": table + "\n| d | e |\n", "docs/text.md": "Text.\n| a | b |\n"})
    assert said(prose, tree) == [
        "docs/long.md:3: a table's cell of 61 words; the limit is 60",
        "docs/parted.md:5: a table's row without a head above it",
        "docs/text.md:2: a table's row without a head above it",
    ]


def test_a_listed_page_may_be_better_and_not_worse(checkout):
    tree = checkout({"docs/wide.md": ("x" * 121 + "\n") * 2})
    assert said(prose, tree, PAGES={"docs/wide.md": (3, 0, 0)}) == []
    assert said(prose, tree, PAGES={"docs/wide.md": (2, 0, 0)}) == []
    assert len(said(prose, tree, PAGES={"docs/wide.md": (1, 0, 0)})) == 2


# Words

def test_words_are_found_however_they_are_written(checkout):
    tree = checkout({"src/base/x.cc": "int foreign_pages;\nstruct KeepRecordings;\n// It makes\n// way, or makes way.\nconst char* s = \"an engine that is not ours\";\n",
                     "docs/x.md": "A detour.\n", "web/x.mjs": "const stories = 1;\n"})
    assert said(words, tree) == [
        'docs/x.md:1: "detour": the glossary says peer-assisted load',
        'src/base/x.cc:1: "foreign": the glossary says external',
        'src/base/x.cc:2: "recordings": the glossary says CUDA graph',
        'src/base/x.cc:4: "makes way": the glossary says victim; is evicted; is suspended',
        'src/base/x.cc:5: "engine that is not ours": the glossary says external engine',
        'web/x.mjs:1: "stories": the glossary says request trace',
    ]


def test_words_that_are_parts_of_others_are_no_findings(checkout):
    assert said(words, checkout({"src/base/x.cc": "// History overlaps indeed; an execution is cut off.\nint foreigner, storyline;\n"})) == []


def test_names_of_tests_and_old_names_keep_their_words(checkout):
    tree = checkout({"src/base/x_test.cc": 'TEST(Stories, OfADetour) {}\nTEST_F(DetourTest, OfErrands) {}\njson.key("foreign");  // Old name.\n',
                     "tests/test_x.py": "def test_detour():\n    pass\n", "bench/results/x.md": "A detour.\n"})
    assert said(words, tree) == []


def test_a_word_may_be_allowed_where_it_means_something_else(checkout):
    tree = checkout({"src/gateway/tls.cc": "class Relay {};\n"})
    assert len(said(words, tree)) == 1
    assert said(words, tree, WORDS={("src/gateway/tls", "relay"): "of sockets"}) == []
    assert said(words, tree, WORDS={("src/gateway/tls", "relay"): "", ("src/a", "relay"): ""}) == [
        'tools/tidy/tables.py:1: WORDS allows "relay" in src/a, which does not say it']


# The command

def test_the_command_fails_on_findings_and_prints_graphs(checkout):
    tree = checkout({"src/base/x.h": "// " + "x" * 98 + "\n", "src/core/a.h": "inline void f() {}\n"})
    command = [sys.executable, str(ROOT / "tools" / "tidy.py"), str(tree.root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "src/base/x.h:1: longer than 100 columns" in done.stdout
    done = subprocess.run([*command, "--calls", "src/core"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a: -\n")
