/*
 * release.h - what a store's index is told of its values, for ranges that are logged: see release.c. Private
 * to src/store/. The context is the struct store.
 */
#ifndef STORE_RELEASE_H
#define STORE_RELEASE_H

#include "tree/logging.h"

extern const struct tree_values store_values;

#endif
