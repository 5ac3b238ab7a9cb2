#!/bin/sh
# Makes one object of an archive's members, keeps only the symbols banyan_* global, and puts it into an archive.
# Usage: combine.sh IN.a OUT.a FOLDER (a folder for the object, made if missing)
set -eu
mkdir -p "$3"
ld -r --whole-archive "$1" -o "$3/banyan.o"
objcopy --wildcard --keep-global-symbol='banyan_*' "$3/banyan.o"
rm -f "$2"
ar rcs "$2" "$3/banyan.o"
