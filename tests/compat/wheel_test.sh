#!/usr/bin/env bash
# The wheel has the program and the types, installs where nothing else is, and brings up a gateway from there.
#
#   tests/compat/wheel_test.sh [BUILD]      BUILD holds the program weighlock (build/release)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "${1:-build/release}")
python=$("$here/install_env.sh")/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "wheel: $*" >&2; exit 1; }

wheel=$("$here/../../python/make_wheel.sh" "$build/weighlock" "$work/wheel")
[[ $(basename "$wheel") =~ ^weighlock-[0-9.]+-py3-none-linux_ ]] || fail "$(basename "$wheel") has another platform's tag"
"$python" -m pip install --disable-pip-version-check --no-input --quiet --no-index --no-deps --target "$work/site" "$wheel"
for part in bin/weighlock py.typed __init__.py; do
  [ -f "$work/site/weighlock/$part" ] || fail "$part isn't in it"
done
cmp "$build/weighlock" "$work/site/weighlock/bin/weighlock" || fail "the program inside is another one"
cd "$work"
env -u WEIGHLOCK_BINARY PYTHONPATH="$work/site" XDG_STATE_HOME="$work" PATH=/nowhere "$python" - <<'P'
import weighlock
with weighlock.WeightUpdateController(weighlock.WeightUpdateControllerConfig(admin_api_key="of-the-wheel-test")) as controller:
    assert controller.health_check()
    assert weighlock.find_binary().endswith("site/weighlock/bin/weighlock"), weighlock.find_binary()
print("wheel: a gateway from it answers, version", weighlock.__version__)
P
version=$(PYTHONPATH=$work/site "$python" -c 'import weighlock; print(weighlock.__version__)')
"$build/weighlock" --version | grep -qx "weighlock $version" || fail "package and program have different versions"

# Without the program there is no wheel, and the error says what to do.
cp -r "$here/../../python" "$work/alone"
if said=$(WEIGHLOCK_BINARY=$work/absent "$python" -m pip wheel --no-input --no-deps --no-build-isolation \
  --wheel-dir "$work/none" "$work/alone" 2>&1); then
  fail "a wheel was made without a program"
fi
grep -q "make build" <<<"$said" || fail "the error doesn't say what to do: $said"
