/*
 * index.h - what stands behind an index's handle, and its geometry. Private to src/api/.
 *
 * An index's handle is shared by all threads of its pool. It shares the tree, and the store where the index
 * holds records, with all other handles of the same index.
 */
#ifndef API_INDEX_H
#define API_INDEX_H

#include "api/opened.h"

struct banyan_index {
    struct banyan *banyan;
    struct api_opened *opened;
    struct tree *tree;   /* its tree and store */
    struct store *store; /* NULL: plain values */
    struct api_attachment *attachments;
    uint32_t users; /* open iterators and bulk loads */
    char name[BANYAN_NAME_MAX + 1];
};

/* Session and index are there and of one pool. */
int api_check(struct banyan_session *session, const struct banyan_index *index);
/* ---- geometry.c ---- */

/* A program's geometry (NULL: the default), checked, as the tree's. */
int api_geometry_convert(struct banyan_session *session, const struct banyan_geometry *given,
                         struct format_geometry *geometry);

#endif
