#!/usr/bin/env bash
# Unpack a bundle of `python -m tests.gpu.bundle` on a GPU host without a network, and say how to run it:
#
#     bash unpack.sh DIR [site] [code] [vllm] [flashinfer]     # what is named, or all that lies here
#
# A session can begin without vLLM, which may come later: name what is there. PYTHON names the interpreter (python3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '2,7p' "$0" >&2; exit 64; }
mkdir -p "$1"; dir=$(cd "$1" && pwd); shift
. "$here/bundle.env"
fail() { echo "unpack.sh: $*" >&2; exit 1; }

PYTHON=$(command -v "${PYTHON:-python3}") || fail "no Python here: PYTHON=/path/to/python$python"
found=$("$PYTHON" -c 'import platform as p; print(*p.python_version_tuple()[:2], sep=".", end=" "); print(p.machine())')
[ "$found" = "$python $machine" ] || fail "made for Python $python $machine, and $PYTHON is $found"

names=${*:-$(sed -nE 's/^[0-9a-f]+  ([a-z]+)\.tar.*/\1/p' "$here/SHA256SUMS" | sort -u)}
sums=$(for name in $names; do grep -E "  $name\.tar" "$here/SHA256SUMS" || fail "no $name in this bundle"; done)
(cd "$here" && sha256sum --check --quiet --strict <<< "$sums") || fail "damaged or incomplete: nothing was unpacked"

code=$dir/code gpu=$dir/code/.venv-gpu
joined() { cat $(printf '%s\n' "$sums" | sed -nE "s|^[0-9a-f]+  ($1\.tar.*)|$here/\1|p" | sort); }
install() {  # NAME FOLDER: the wheels of an archive
    local wheels; wheels=$(mktemp -d "$dir/wheels.XXXXXX")
    joined "$1" | tar x -C "$wheels"
    rm -rf "$2"
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
        --target "$2" "$wheels"/*.whl
    rm -rf "$wheels"
}
for name in $names; do
    case $name in
    site) rm -rf "$dir/site"; mkdir -p "$dir/site"; joined site | tar xJ -C "$dir/site" ;;
    code) mkdir -p "$code"; joined code | tar xJ -C "$code" ;;
    vllm) install vllm "$dir/vsite" ;;
    flashinfer) install flashinfer "$gpu/flashinfer" ;;
    esac
    echo "unpacked: $name"
done

wrong=0  # what cannot be imported is said, and the rest made all the same: some parts may do without
if [ -d "$dir/site" ]; then
    PYTHONPATH=$code:$dir/site "$PYTHON" - "$imports" <<'CHECK' || wrong=1
import importlib, sys
from importlib.metadata import packages_distributions, version
names, missing = packages_distributions(), []
for name in sys.argv[1].split():
    try:
        importlib.import_module(name)
        print(name, version(names[name][0]) if name in names else "of Python")
    except Exception as why:
        missing.append(f"{name} ({type(why).__name__}: {why})")
sys.exit("unpack.sh: not to be imported: " + ", ".join(missing) if missing else 0)
CHECK
fi

vllm=
if [ -d "$dir/vsite" ]; then
    # An interpreter that has vLLM. Which GPU it sees is for who starts it to say; MORE_PATH is for single variants.
    mkdir -p "$gpu/bin"
    for path in "$dir/vsite" "$dir/vsite:$dir/site"; do  # the second where the host has no transformers
        cat > "$gpu/bin/python" <<WRAPPER
#!/bin/sh
[ -n "\$PYTHONPATH" ] || export PYTHONPATH="$path"
case \$MORE_PATH in
"") ;;
/*) export PYTHONPATH="\$PYTHONPATH:\$MORE_PATH" ;;
*) export PYTHONPATH="\$PYTHONPATH:$code/\$MORE_PATH" ;;
esac
exec "$PYTHON" "\$@"
WRAPPER
        chmod +x "$gpu/bin/python"
        said=$(PYTHONPATH='' MORE_PATH='' "$gpu/bin/python" -c 'import transformers, vllm; print("vllm", vllm.__version__)' 2>&1) && break
        said="vLLM cannot be imported: $said"
    done
    echo "$said"
    case $said in "vLLM cannot"*) wrong=1 ;; esac
    vllm=" --vllm-path '$path'"
fi

echo
echo "Code of $commit. Run:"
echo "  cd '$code' && PYTHONPATH='$dir/site' '$PYTHON' -m tests.gpu --out '$dir/out' --minutes 30$vllm"
exit "$wrong"
