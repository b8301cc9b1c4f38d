#!/bin/sh
# Installs imgcheck as a tree for a shared file system: read-only, relocatable, used with any Python 3.11 or later.
# usage: install.sh DIRECTORY [PIP OPTIONS ...]          offline: install.sh DIRECTORY --no-index --find-links WHEELS
# $PYTHON is the interpreter of the nodes (default /usr/bin/python3); $PIP a command with pip (default $PYTHON -m pip),
# $IMGCHECK_SOURCE what is installed (default imgcheck). With OWN_PYTHON=1 a copy of $PYTHON goes into the tree, for nodes
# without a Python that is new enough.
set -eu
tree=${1:?usage: install.sh DIRECTORY [PIP OPTIONS ...]}
shift
PYTHON=${PYTHON:-/usr/bin/python3}
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$tree/bin" "$tree/lib"
${PIP:-"$PYTHON" -m pip} install --quiet --no-compile --only-binary :all: --python-version "$version" \
  --target "$tree/lib/packages" "$@" "${IMGCHECK_SOURCE:-imgcheck}"
cat >"$tree/lib/launch.py" <<END
import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/packages")
from imgcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
END
interpreter=$PYTHON
if [ "${OWN_PYTHON:-0}" = 1 ]; then
  "$PYTHON" "$(dirname "$0")/own_python.py" "$tree/lib/python" "$tree/lib/packages"
  interpreter='${0%/*}/../lib/python/bin/python3'
fi
cat >"$tree/bin/imgcheck" <<END
#!/bin/sh
# No PATH, HOME or writable tree is needed. -I and -S: nothing of the user's own Python; -B: nothing is written.
exec "\${IMGCHECK_PYTHON:-$interpreter}" -I -S -B "\${0%/*}/../lib/launch.py" "\$@"
END
chmod 755 "$tree/bin/imgcheck"
# Compiled once, and never compared with the source again: a shared file system is spared that question.
"$PYTHON" -m compileall -q -s "$tree" --invalidation-mode unchecked-hash "$tree/lib"
