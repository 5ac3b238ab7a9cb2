#!/bin/sh
# Installs into a scratch folder and builds an example as a user would, shared and static, then runs both.
# Usage: check_pkgconfig.sh BUILD EXAMPLE.c COMPILER... PREFIX LIBDIR
set -eu
build=$1 example=$2
shift 2
compiler=
while [ $# -gt 2 ]; do compiler="$compiler $1"; shift; done
prefix=$1 libdir=$2

root=$build/tests/api/installed
rm -rf "$root"
DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >/dev/null
export PKG_CONFIG_PATH="$root$prefix/$libdir/pkgconfig"
flags="$(pkg-config --define-variable=prefix="$root$prefix" --cflags --libs banyan)"
[ "$(pkg-config --modversion banyan)" = 0.1.0 ]

# shellcheck disable=SC2086 # flags are words
$compiler -Wall -Wextra -Werror "$example" $flags -o "$root/shared"
LD_LIBRARY_PATH="$root$prefix/$libdir" "$root/shared"
# The archive, and what it needs of other libraries, which stay shared.
# shellcheck disable=SC2046 # names are words
needs=$(pkg-config --libs $(pkg-config --print-requires-private banyan | cut -d' ' -f1))
# shellcheck disable=SC2086
$compiler -Wall -Wextra -Werror "$example" -I"$root$prefix/include" "$root$prefix/$libdir/libbanyan.a" -pthread -lm $needs \
    -o "$root/static"
"$root/static"
