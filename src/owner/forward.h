/* forward.h - what the tree calls for keys of others' ranges (struct tree_forward of rights.h). Private to
 * src/owner/; the context is the struct owner. */
#ifndef OWNER_FORWARD_H
#define OWNER_FORWARD_H

#include "owner/owner.h"

extern const struct tree_forward owner_forward;

#endif
