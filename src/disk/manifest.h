/*
 * manifest.h - the small file `manifest`, which says whose directory this is, and where the next life begins:
 * at the present checkpoint, and at the position up to which that makes the journal unneeded.
 *
 * One thread. It is replaced as a whole, and is never changed in place: a life finds the old one or the new
 * one (D14). A checkpoint's part is a file `checkpoint-...` that the checkpoint's maker writes and syncs
 * before the manifest names it; files that no manifest names any more are removed when it is replaced, or
 * opened (D15).
 *
 * It is binary, with a checksum over all of it, and not JSON: keys are any bytes, which JSON has no text for;
 * a text with a checksum cannot be edited either; and this layer needs no library for it. All numbers are
 * little-endian.
 *
 *   header  0  8  "BNYNMNFT"
 *           8  4  version: 2; 1 where the directory has no token and nothing is noted of others
 *          12  4  bytes of the whole file
 *          16  8  the cluster
 *          24  4  the memory node's number
 *          28  4  memory nodes that the cluster has had, or is going to have: at least that many
 *          32  8  serial: 1 for the first manifest, one more for each
 *          40  8  the checkpoint's number; 0: there is none
 *          48  8  the journal's position up to which it is needed no more
 *          56  4  parts
 *          60  4  CRC32C of the bytes before; it stays here in all versions
 *   tokens  0  8  the directory's token; only in version 2, as the joins
 *           8  4  joins,  12  4  0
 *   join    0  4  the number of a memory node that joined, or was to; ascending
 *           4  4  enum manifest_join_state
 *           8  8  the token of its directory; 0: of several
 *   part    0  1  bytes of its file's name
 *           1  1  bytes of the lower bound; 0: the part begins with the first key
 *           2  1  bytes of the upper bound
 *           3  1  1: there is an upper bound, which does not belong to the part; 0: there is none
 *           4  8  epoch,  12  8  sequence: what was committed when its scan began
 *          20  8  entries
 *          28  8  bytes of the file
 *          36  8  check of the file's bytes, by the code that writes and reads it
 *          44     name, lower bound, upper bound
 *   end     0  4  CRC32C of all bytes before
 */
#ifndef DISK_MANIFEST_H
#define DISK_MANIFEST_H

#include "disk/disk.h"

#define MANIFEST_VERSION   2u
#define MANIFEST_NAME      "manifest"
#define MANIFEST_NEW       "manifest.new"
#define MANIFEST_PREPARED  "manifest.prepared"
#define MANIFEST_PREFIX    "checkpoint-" /* of the names of parts */
#define MANIFEST_KEY_MAX   255u
#define MANIFEST_PARTS_MAX 65536u
#define MANIFEST_JOINS_MAX 96u /* numbers of memory nodes that can be noted */

struct manifest_part {
    char name[DISK_NAME_MAX + 1];
    uint8_t lower_length, upper_length;
    bool has_upper;
    uint64_t epoch, sequence, entries, bytes, check;
    uint8_t lower[MANIFEST_KEY_MAX], upper[MANIFEST_KEY_MAX];
};

/*
 * TOKENS. A number that was meant for a memory node goes to another one if the first one's join fails, and
 * then there are two directories of that number. So each directory has a token, and all members note the
 * token of one that is to join beside its number, and once more when it has joined (memory/cluster.h lists
 * it). The first note says only who was to: a join that fails leaves it, and the next one makes it `several`,
 * also where both are under way at once. The second one is made for the one that is listed, and stays.
 */
enum manifest_join_state {
    MANIFEST_JOIN_NONE,    /* nothing is known of that number */
    MANIFEST_JOIN_MEANT,   /* one directory, which was to join */
    MANIFEST_JOIN_SEVERAL, /* several: one of them may have joined; or one without a token */
    MANIFEST_JOIN_DONE,    /* it has joined */
    MANIFEST_JOIN_STATES
};

struct manifest_join {
    uint32_t state; /* enum manifest_join_state */
    uint64_t token; /* 0: as the directory has none, which an earlier release began; or of several */
};

struct manifest {
    uint64_t cluster, token; /* token: of the directory, random; 0: an earlier release began it */
    uint32_t node, nodes;
    struct manifest_join joins[MANIFEST_JOINS_MAX]; /* by the numbers of other memory nodes */
    uint64_t serial, checkpoint, position;
    uint32_t part_count;
    struct manifest_part *parts; /* owned by what manifest_open has filled */
};

/* The directory's manifest, which must be of this cluster and memory node, and of `nodes` memory nodes or
 * more (some may have joined). Removes what is left of changes that were cut. BANYAN_ENOTFOUND: there is
 * none; BANYAN_EINVAL: it is another's; BANYAN_EVERSION; BANYAN_ECORRUPT: it, or a part of the checkpoint, is
 * damaged or missing. */
int manifest_open(struct disk *disk, uint64_t cluster, uint32_t node, uint32_t nodes,
                  struct manifest *manifest, struct error *error);
/* The same where the next one may have been prepared: then that one, and its parts, stay too, and have to be
 * whole; *prepared has serial 0 where there is none. */
int manifest_open_both(struct disk *disk, uint64_t cluster, uint32_t node, uint32_t nodes,
                       struct manifest *manifest, struct manifest *prepared, struct error *error);
/* Reads it, of whichever memory node, for tools: changes nothing, and looks at no part. Errors as above. */
int manifest_read(struct disk *disk, struct manifest *manifest, struct error *error);
/* The next one of this manifest, likewise; BANYAN_ENOTFOUND: none was prepared. */
int manifest_read_prepared(struct disk *disk, const struct manifest *manifest, struct manifest *prepared,
                           struct error *error);
void manifest_free(struct manifest *manifest);

/* `next` takes the place of `old` (NULL: there is none yet), with the next serial, which is set. When it
 * returns 0 it is safe, and the old one's parts that it does not name are removed. When it fails, the next
 * life may find either one: nothing that either needs may be released. */
int manifest_replace(struct disk *disk, const struct manifest *old, struct manifest *next,
                     struct error *error);

/* Makes `next`, whose parts are on the disk, safe beside `old`, which goes on to count: a next life finds
 * both, until one of them is replaced or the prepared one forgotten. Sets the next one's serial. */
int manifest_prepare(struct disk *disk, const struct manifest *old, struct manifest *next,
                     struct error *error);
/* Removes the prepared one, and its parts that `now` does not name. Also if there is none. */
int manifest_forget(struct disk *disk, const struct manifest *now, const struct manifest *prepared,
                    struct error *error);

/* Notes that the directory with this token is to join as memory node `node`, or has. It changes this struct
 * alone. BANYAN_EEXIST: the number is that of another one, which has joined; BANYAN_EINVAL: there is no such
 * number. */
int manifest_join_note(struct manifest *manifest, uint32_t node, uint64_t token, bool joined);
/* Whether that is noted there, or more than that. */
bool manifest_join_stands(const struct manifest_join *join, uint64_t token, bool joined);
/* Whether the note is sure that a directory with this token is not that memory node's. A first note is so
 * where no other one can have followed it unheard: in memory node 0's manifest, which is told last, and of
 * each join (`home`). */
bool manifest_join_denies(const struct manifest_join *join, uint64_t token, bool home);

/* The file's bytes. `*bytes` is the caller's, from malloc. BANYAN_EINVAL: a part that cannot be. */
int manifest_encode(const struct manifest *manifest, uint8_t **bytes, size_t *length, struct error *error);
/* `where` is for messages. To be freed only if it returns 0. */
int manifest_decode(struct manifest *manifest, const uint8_t *bytes, size_t length, const char *where,
                    struct error *error);

#endif
