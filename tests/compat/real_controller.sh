#!/usr/bin/env bash
# Runs real_controller_test.py in the environment that has AReaL's controller.
#
#   tests/compat/real_controller.sh [BUILD] [unittest's arguments]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$("$here/install_env.sh")/bin/python" -W ignore::ResourceWarning "$here/real_controller_test.py" "${@:-build/release}"
