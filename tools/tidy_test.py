#!/usr/bin/env python3
"""Each rule of tidy.py finds what it is for, and leaves a clean tree alone."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy  # noqa: E402


class Tidy(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.root = Path(self.directory.name)
        self.module("core", "")
        self.module("runtime", "DEPS core")
        self.module("net", "DEPS core runtime LIBS OpenSSL::SSL TEST_DEPS io")
        self.module("io", "DEPS core runtime")
        self.module("protocol", "DEPS core")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def module(self, name, rest):
        self.write(f"src/weighlock/{name}/CMakeLists.txt", f"weighlock_module({name} {rest})\n")
        self.write(f"src/weighlock/{name}/README.md", f"# {name}\n")
        self.write(f"src/weighlock/{name}/x.hpp", "#pragma once\n")

    def findings(self):
        return tidy.check(self.root)

    def assert_one(self, part):
        found = self.findings()
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_a_clean_tree_has_no_findings(self):
        self.write("src/weighlock/net/a.cpp",
                   '#include "weighlock/core/x.hpp"\n#include <boost/asio.hpp>\n#include "weighlock/net/x.hpp"\n')
        self.assertEqual(self.findings(), [])

    def test_an_undeclared_include_is_found(self):
        self.write("src/weighlock/net/a.cpp", '#include "weighlock/protocol/x.hpp"\n')
        self.assert_one("net/a.cpp: includes weighlock/protocol/")

    def test_a_test_may_use_test_deps_and_others_may_not(self):
        self.write("src/weighlock/net/a_test.cpp", '#include "weighlock/io/x.hpp"\n')
        self.assertEqual(self.findings(), [])
        self.write("src/weighlock/net/a.cpp", '#include "weighlock/io/x.hpp"\n')
        self.assert_one("net/a.cpp: includes weighlock/io/")

    def test_a_dependency_upward_is_found(self):
        self.module("runtime", "DEPS core net")
        self.assert_one("'runtime' may not depend on 'net'")

    def test_a_pure_module_links_core_only(self):
        self.module("engines", "DEPS core protocol")
        self.assert_one("'engines' is pure")

    def test_an_unknown_module_or_dependency_is_found(self):
        self.module("helpers", "DEPS core")
        self.assert_one("'helpers' has no layer")
        self.module("helpers", "DEPS core")
        self.module("io", "DEPS core runtim")
        self.assertEqual(len(self.findings()), 2)

    def test_asio_in_a_header_is_found_but_in_the_one_that_may(self):
        self.write("src/weighlock/runtime/asio_loop.hpp", "#include <boost/asio/io_context.hpp>\n")
        self.assertEqual(self.findings(), [])
        self.write("src/weighlock/net/y.hpp", "#include <boost/beast/http.hpp>\n")
        self.assert_one("net/y.hpp: Asio and Beast")

    def test_a_long_file_must_say_why(self):
        self.write("tests/sim/a.cpp", "int x;\n" * 450)
        self.assertEqual(self.findings(), [])
        self.write("tests/sim/a.cpp", "int x;\n" * 451)
        self.assert_one("451 lines")
        self.write("tests/sim/a.cpp", "// long because it is one table\n" + "int x;\n" * 451)
        self.assertEqual(self.findings(), [])

    def test_long_lines_tabs_and_unfinished_work_are_found(self):
        self.write("apps/a.cpp", "x" * 131 + "\n")
        self.assert_one("apps/a.cpp:1: 131 characters")
        self.write("apps/a.cpp", "\tint x;\n")
        self.assert_one("apps/a.cpp:1: a tab")
        self.write("apps/a.cpp", "int x;\n// TO" + "DO later\n")
        self.assert_one("apps/a.cpp:2: unfinished")

    def test_a_folder_without_readme_is_found(self):
        (self.root / "src/weighlock/io/README.md").unlink()
        self.assert_one("src/weighlock/io: no README.md")

    def test_a_case_that_names_no_test_is_found(self):
        self.write("src/weighlock/io/x_test.cpp", "TEST_F(Files,\n       are_whole) {}\nTEST(Pipe, holds) {}\n")
        self.write("tests/cases.md", "| A1 | whole | `Files.are_whole`, `Pipe.holds` |\n`tools/tidy.py` checks\n")
        self.assertEqual(self.findings(), [])
        self.write("tests/a/x_test.py", "class First:\n    def test_one(self):\nclass Second(First):\n    def test_two(self):\n")
        self.write("tests/cases.md", "| A2 | whole | `First.test_one`, `Second.test_two` |\n")
        self.assertEqual(self.findings(), [])
        self.write("tests/cases.md", "| A2 | whole | `First.test_two` |\n")
        self.assert_one("tests/cases.md: names First.test_two")
        self.write("tests/cases.md", "| A1 | whole | `Files.are_whole`, `Pipe.hold` |\n")
        self.assert_one("tests/cases.md: names Pipe.hold")
        self.write("tests/wire_test.py", "class Pipe(unittest.TestCase):\n    def test_hold(self):\n        pass\n")
        self.write("tests/cases.md", "| A1 | whole | `Pipe.test_hold` |\n")
        self.assertEqual(self.findings(), [])

    def test_a_limit_without_a_row_a_value_or_a_test_is_found(self):
        self.write("src/weighlock/io/x_test.cpp", "TEST(Pipe, holds) {}\n")
        self.write("src/weighlock/core/limits.hpp", "inline constexpr std::size_t kBytesMax =\n    16 * 1024;  // why = so;\n")
        self.assert_one("docs/limits.md: no row for kBytesMax")
        row = "| `kBytesMax` | `{}` | 413 | {} |\n"
        self.write("docs/limits.md", row.format("16 * 1024", "`Pipe.holds`"))
        self.assertEqual(self.findings(), [])
        self.write("docs/limits.md", row.format("16 * 1024", ""))
        self.assert_one("has no test")
        self.write("docs/limits.md", row.format("8 * 1024", "`Pipe.holds`"))
        self.assert_one("is `16 * 1024`")
        self.write("docs/limits.md", row.format("16 * 1024", "`Pipe.holds`") + "| `kGone` | `1` | x | `Pipe.holds` |\n")
        self.assert_one("kGone is not in")

    def test_a_name_without_a_row_in_its_document_is_found(self):
        self.write("src/weighlock/protocol/types.hpp",
                   "enum class CauseCode {\n  lost,  // no, none\n  torn,\n};\nenum class Verdict { whole };\n")
        self.write("docs/glossary.md", "\n| `lost` | x |\n| `whole` | x |\nnot a row: `torn`\n")
        self.assert_one("docs/glossary.md: no row for torn")
        self.write("docs/glossary.md", "\n| `lost` | x |\n| `torn` | x |\n| `whole` | x |\n")
        self.assertEqual(self.findings(), [])
        self.write("src/weighlock/protocol/types.hpp", "enum class Verdict { whole };\n")
        self.assert_one("put DOCUMENTED of tools/tidy.py right")


if __name__ == "__main__":
    unittest.main()
