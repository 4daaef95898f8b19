#!/bin/sh
# Install steps of the one image; run by the Dockerfile, and as they are by CI in a clean folder.
# Usage: install.sh SOURCE VENV
set -eu
source_folder=${1:?source folder}
venv=${2:?folder of the virtual environment}
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --no-cache-dir -c "$source_folder/constraints.txt" pip setuptools
"$venv/bin/python" -m pip install --quiet --no-cache-dir -c "$source_folder/constraints.txt" \
  --no-build-isolation "$source_folder[cluster]"
"$venv/bin/whiflash" --version
"$venv/bin/python" -c 'import services.app'
