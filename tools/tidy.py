#!/usr/bin/env python3
"""Checks the shape of the source tree; prints one line for each finding and exits 1 if there is any.

  tools/tidy.py [ROOT]

* An #include "weighlock/X/..." in module M needs X in the DEPS of M's weighlock_module(...) line. Tests (*_test.cpp) may also
  use TEST_DEPS. DEPS point downward: a module may only name modules of a lower layer (LAYERS), so there is no cycle.
* The pure modules depend on core only; reshard on tensor too, which is as pure.
* Asio and Beast appear in no header but runtime/asio_loop.hpp.
* tests/cases.md and docs/limits.md name only tests that exist; docs/limits.md has a row for each constant of core/limits.hpp,
  with its default as the header writes it and a test that reaches it.
* docs/settings.md, docs/glossary.md and docs/metrics.md have a row for each name of a setting, a cause, a state and a series
  (DOCUMENTED).
* A file has at most 450 lines, unless its first ten lines say why ("long because ..."); a line has at most 130 characters,
  no tab (raw string literals may be longer), and no note of unfinished work. Each folder of src/weighlock has a README.md.
"""
import re
import subprocess
import sys
from pathlib import Path

PURE = ("protocol", "engines", "trainers", "tensor", "reshard")
PURE_DEPS = {"reshard": ("core", "tensor")}
# From the bottom up; a module may use what stands in an earlier row, or earlier in its own.
LAYERS = (
    ("core",),
    PURE,
    ("config", "runtime", "io", "net"),
    ("journal", "store", "awex"),
    ("client", "gateway", "testing"),
)
LINES_MAX = 450
COLUMNS_MAX = 130
SOURCE_SUFFIXES = (".cpp", ".hpp", ".def", ".py", ".sh", ".cmake")
ASIO_HEADER = "src/weighlock/runtime/asio_loop.hpp"

MODULE = re.compile(r"weighlock_module\(\s*(\w+)([^)]*)\)")
INCLUDE = re.compile(r'^\s*#\s*include\s+"weighlock/(\w+)/', re.MULTILINE)
ASIO = re.compile(r"^\s*#\s*include\s+<boost/(asio|beast)", re.MULTILINE)
TEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^    def (test_\w+)\(", re.MULTILINE)
NAMED_TEST = re.compile(r"`([A-Z]\w*\.[a-z]\w*)`")
LIMIT = re.compile(r"inline constexpr [\w:]+ (k\w+)\s*=\s*([^;]+);")
# Source, what holds the names there (all of it, then one name), and the document whose rows begin with them.
DOCUMENTED = (
    ("src/weighlock/gateway/settings.cpp", r"known\{([^}]*)\}", r'"(\w+)"', "docs/settings.md"),
    ("src/weighlock/gateway/settings.cpp", r"known\.insert\(known\.end\(\), \{([^}]*)\}", r'"(\w+)"', "docs/settings.md"),
    ("src/weighlock/gateway/settings.cpp", r"unknown_key\(\*object, inner, \{([^}]*)\}", r'"(\w+)"', "docs/settings.md"),
    ("src/weighlock/protocol/types.hpp", r"enum class CauseCode \{(.*?)\};", r"(?m)^\s*(\w+),", "docs/glossary.md"),
    ("src/weighlock/protocol/types.hpp", r"enum class Verdict \{(.*?)\};", r"(\w+)", "docs/glossary.md"),
    ("src/weighlock/gateway/metrics.cpp", r"(.*)", r'head\(out, "(\w+)"', "docs/metrics.md"),
)
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")
RANK = {name: (layer, place) for layer, names in enumerate(LAYERS) for place, name in enumerate(names)}


def words_after(keyword, text):
    """The words between `keyword` and the next all-capitals keyword."""
    words, taking = [], False
    for word in text.split():
        if word in ("DEPS", "LIBS", "TEST_DEPS"):
            taking = word == keyword
        elif taking:
            words.append(word)
    return words


def read_modules(root):
    """Name -> {"deps", "test_deps"} as declared, for every module of the tree."""
    modules = {}
    for file in sorted((root / "src/weighlock").glob("*/CMakeLists.txt")):
        text = re.sub(r"#.*", "", file.read_text())
        for name, rest in MODULE.findall(text):
            modules[name] = {"deps": words_after("DEPS", rest), "test_deps": words_after("TEST_DEPS", rest)}
    return modules


def check_declarations(modules):
    for name, module in modules.items():
        where = f"src/weighlock/{name}/CMakeLists.txt"
        if name not in RANK:
            yield f"{where}: module '{name}' has no layer: add it to LAYERS in tools/tidy.py"
            continue
        for dep in module["deps"]:
            if dep not in RANK:
                yield f"{where}: unknown module '{dep}' in DEPS"
            elif name in PURE and dep not in PURE_DEPS.get(name, ("core",)):
                yield f"{where}: '{name}' is pure and may depend on core only, not on '{dep}'"
            elif RANK[dep] >= RANK[name]:
                yield f"{where}: '{name}' may not depend on '{dep}', which is not below it"


def check_includes(root, modules):
    for name, module in modules.items():
        for file in sorted((root / "src/weighlock" / name).rglob("*.[ch]pp")):
            allowed = {name, *module["deps"]}
            # A header made for tests ("for tests" in its first line) may use what tests may.
            text = file.read_text()
            if file.name.endswith("_test.cpp") or "for tests" in text.partition("\n")[0].lower():
                allowed |= set(module["test_deps"])
            for used in sorted(set(INCLUDE.findall(text)) - allowed):
                yield f"{file.relative_to(root)}: includes weighlock/{used}/, which '{name}' doesn't declare in DEPS"
            if file.suffix == ".hpp" and str(file.relative_to(root)) != ASIO_HEADER and ASIO.search(text):
                yield f"{file.relative_to(root)}: Asio and Beast are for .cpp files"


def check_text(root, file):
    where = file.relative_to(root)
    lines = file.read_text(errors="replace").split("\n")
    count = len(lines) - (lines[-1] == "")
    if count > LINES_MAX and not any("long because" in line for line in lines[:10]):
        yield f"{where}: {count} lines, more than {LINES_MAX}: split it, or say 'long because ...' in its first ten lines"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and 'R"(' not in line:  # a peer's literal answer stays in one piece
            yield f"{where}:{number}: {len(line)} characters, more than {COLUMNS_MAX}"
        if "\t" in line:
            yield f"{where}:{number}: a tab"
        if UNFINISHED.search(line):
            yield f"{where}:{number}: unfinished work belongs in an issue"


def source_files(root):
    """Tracked and new files, so that build outputs don't count; every file where there is no git."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    names = listed.stdout.split("\n") if listed.returncode == 0 else [str(p.relative_to(root)) for p in root.rglob("*")]
    for name in sorted(filter(None, names)):
        path = root / name
        if path.is_file() and (path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt"):
            yield path


def check_readmes(root):
    for folder in sorted((root / "src/weighlock").iterdir()):
        if folder.is_dir() and any(folder.glob("*.[ch]pp")) and not (folder / "README.md").is_file():
            yield f"{folder.relative_to(root)}: no README.md (purpose, thread rule, what it owns, where to start)"


def read_tests(root):
    tests = set()
    for file in source_files(root):
        if file.name.endswith("_test.cpp"):
            tests.update(f"{suite}.{name}" for suite, name in TEST.findall(file.read_text(errors="replace")))
        elif file.name.endswith("_test.py"):
            for part in re.split(r"(?m)^(?=class )", file.read_text(errors="replace")):
                for suite in PYTHON_CLASS.findall(part)[:1]:
                    tests.update(f"{suite}.{name}" for name in PYTHON_TEST.findall(part))
    return tests


def check_named_tests(root):
    documents = [path for path in (root / "tests/cases.md", root / "docs/limits.md") if path.is_file()]
    tests = read_tests(root) if documents else set()
    for document in documents:
        for name in NAMED_TEST.findall(document.read_text()):
            if name not in tests:
                yield f"{document.relative_to(root)}: names {name}, and no *_test.cpp or *_test.py has it"


def check_limits(root):
    header, table = root / "src/weighlock/core/limits.hpp", root / "docs/limits.md"
    if not header.is_file():
        return
    rows = {}
    for line in table.read_text().split("\n") if table.is_file() else []:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `k") and len(cells) == 4:
            rows[cells[0].strip("`")] = cells
    limits = {name: re.sub(r"\s+", " ", value.strip()) for name, value in LIMIT.findall(re.sub(r"//.*", "", header.read_text()))}
    for name, value in limits.items():
        if name not in rows:
            yield f"docs/limits.md: no row for {name}"
        elif rows[name][1].strip("`") != value:
            yield f"docs/limits.md: {name} is `{value}` in core/limits.hpp, not {rows[name][1]}"
        elif not NAMED_TEST.search(rows[name][3]):
            yield f"docs/limits.md: {name} has no test that reaches it"
    for name in rows:
        if name not in limits:
            yield f"docs/limits.md: {name} is not in core/limits.hpp"


def check_documented(root):
    for source, whole, one, document in DOCUMENTED:
        if not (root / source).is_file():
            continue
        found = re.search(whole, (root / source).read_text(), re.DOTALL)
        names = re.findall(one, found[1]) if found else []
        if not names:
            yield f"{source}: no names are found there for {document}: put DOCUMENTED of tools/tidy.py right"
        text = (root / document).read_text() if (root / document).is_file() else ""
        for name in names:
            if f"\n| `{name}`" not in text:
                yield f"{document}: no row for {name} of {source}"


def check(root):
    modules = read_modules(root)
    findings = [*check_declarations(modules), *check_includes(root, modules), *check_readmes(root),
                *check_named_tests(root), *check_limits(root), *check_documented(root)]
    for file in source_files(root):
        findings.extend(check_text(root, file))
    return findings


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} finding{'' if len(findings) == 1 else 's'}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
