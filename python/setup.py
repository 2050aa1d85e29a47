"""The part of the build that pyproject.toml can't say: the program goes into the wheel, which so belongs to one platform.

The program is WEIGHLOCK_BINARY, or build/release/weighlock of the tree that this folder is in.
"""

import os
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("WEIGHLOCK_BINARY") or os.path.join(os.path.dirname(HERE), "build", "release", "weighlock")


class BuildWithProgram(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return  # the package is used where it lies; WEIGHLOCK_BINARY or PATH tells the program
        if not os.access(BINARY, os.X_OK):
            raise SystemExit(f"{BINARY} isn't there: run `make build` first, or name the program in WEIGHLOCK_BINARY")
        folder = os.path.join(self.build_lib, "weighlock", "bin")
        self.mkpath(folder)
        shutil.copy(BINARY, os.path.join(folder, "weighlock"))


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True


def wheel_command():
    """bdist_wheel with a tag that says: any Python 3, this platform. Its home moved from wheel to setuptools in 70.1."""
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:
        from wheel.bdist_wheel import bdist_wheel

    class AnyPython(bdist_wheel):
        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    return AnyPython


setup(cmdclass={"build_py": BuildWithProgram, "bdist_wheel": wheel_command()}, distclass=PlatformDistribution)
