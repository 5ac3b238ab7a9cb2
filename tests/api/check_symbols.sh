#!/bin/sh
# Both libraries show symbols named banyan_* and no others. Usage: check_symbols.sh LIBRARY.a LIBRARY.so
set -eu
check() { # name, symbols
    strangers=$(printf '%s\n' "$2" | grep -v -e '^banyan_' -e '^$' || true)
    if [ -n "$strangers" ]; then
        echo "$1 shows symbols that are not its own:" "$strangers" >&2
        exit 1
    fi
    for wanted in banyan_open banyan_get banyan_iterator_next banyan_bulk_finish banyan_version; do
        printf '%s\n' "$2" | grep -qx "$wanted" || { echo "$1 lacks $wanted" >&2; exit 1; }
    done
}
check "$1" "$(nm --extern-only --defined-only "$1" | awk 'NF == 3 { print $3 }')"
check "$2" "$(nm --dynamic --extern-only --defined-only "$2" | awk 'NF == 3 { print $3 }')"
