#!/bin/sh
# Writes requirements.txt: every version that an installation needs, for Python 3.11 and 3.12, from the bounds in setup.py.
# t5 asks for nightly builds of seqio and tensorflow-datasets, which install over the same files as the releases: left out.
#
# `sh lock.sh --hashes` leaves the versions as they are and writes requirements-hashed.txt, which pip installs only where
# every file is one of those that the index has published: pip install --no-deps --require-hashes -r requirements-hashed.txt
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'uv>=0.9'
if [ "${1:-}" = --hashes ]; then
  "$folder/venv/bin/uv" pip compile --quiet --universal --no-deps --python-version 3.11 --generate-hashes \
    --no-annotate --no-header --no-emit-index-url requirements.txt --output-file "$folder/hashed.txt"
  {
    echo '# Made by `sh lock.sh --hashes`. Install with: pip install --no-deps --require-hashes -r requirements-hashed.txt'
    cat "$folder/hashed.txt"
  } > requirements-hashed.txt
  echo "requirements-hashed.txt: $(grep -c == requirements-hashed.txt) versions"
  exit
fi
printf "%s; sys_platform == 'never'\n" seqio-nightly tfds-nightly > "$folder/overrides.txt"
"$folder/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --overrides "$folder/overrides.txt" \
  --extra prepare --extra dev --no-annotate --no-header --no-emit-index-url --upgrade setup.py --output-file "$folder/lock.txt"
{
  echo '# Made by `make lock`. Install with: pip install --no-deps -r requirements.txt'
  grep -v "sys_platform == 'never'" "$folder/lock.txt"
} > requirements.txt
echo "requirements.txt: $(grep -c == requirements.txt) versions"
