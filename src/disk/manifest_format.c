/* manifest_format.c - see manifest.h: its bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "disk/manifest.h"

#define MAGIC        "BNYNMNFT"
#define HEADER_BYTES 64u
#define HEADER_CHECK 60u
#define TOKENS_BYTES 16u
#define JOIN_BYTES   16u
#define PART_BYTES   44u
#define CHECK_BYTES  4u

static bool name_right(const char *name)
{
    return disk_name_valid(name) && strncmp(name, MANIFEST_PREFIX, sizeof MANIFEST_PREFIX - 1) == 0;
}

static bool bounds_right(const struct manifest_part *part)
{
    const size_t common = part->lower_length < part->upper_length ? part->lower_length : part->upper_length;
    if (!part->has_upper)
        return !part->upper_length;
    const int order = memcmp(part->lower, part->upper, common);
    return order < 0 || (order == 0 && part->lower_length < part->upper_length);
}

/* ---- writing ---- */

static size_t part_bytes(const struct manifest_part *part)
{
    return PART_BYTES + strlen(part->name) + part->lower_length + part->upper_length;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t length)
{
    if (length)
        memcpy(to, bytes, length);
    return to + length;
}

static uint8_t *put_part(uint8_t *to, const struct manifest_part *part)
{
    const uint64_t numbers[] = {part->epoch, part->sequence, part->entries, part->bytes, part->check};
    *to++ = (uint8_t)strlen(part->name);
    *to++ = part->lower_length;
    *to++ = part->upper_length;
    *to++ = part->has_upper;
    to = put(to, numbers, sizeof numbers);
    to = put(to, part->name, strlen(part->name));
    to = put(to, part->lower, part->lower_length);
    return put(to, part->upper, part->upper_length);
}

static uint32_t joins_count(const struct manifest *manifest)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MANIFEST_JOINS_MAX; i++)
        count += manifest->joins[i].state != MANIFEST_JOIN_NONE;
    return count;
}

/* The oldest version that has a place for all that it says, so that earlier releases read what they can. */
static uint32_t version_of(const struct manifest *manifest)
{
    return manifest->token || joins_count(manifest) ? MANIFEST_VERSION : 1;
}

static size_t tokens_bytes(const struct manifest *manifest)
{
    return version_of(manifest) == 1 ? 0 : TOKENS_BYTES + joins_count(manifest) * JOIN_BYTES;
}

static uint8_t *put_tokens(uint8_t *to, const struct manifest *manifest)
{
    const uint32_t numbers[] = {joins_count(manifest), 0};
    if (version_of(manifest) == 1)
        return to;
    to = put(to, &manifest->token, sizeof manifest->token);
    to = put(to, numbers, sizeof numbers);
    for (uint32_t node = 0; node < MANIFEST_JOINS_MAX; node++) {
        const struct manifest_join *join = &manifest->joins[node];
        if (join->state == MANIFEST_JOIN_NONE)
            continue;
        to = put(to, &node, sizeof node);
        to = put(to, &join->state, sizeof join->state);
        to = put(to, &join->token, sizeof join->token);
    }
    return to;
}

static void put_header(uint8_t *to, const struct manifest *manifest, size_t length)
{
    const uint32_t version = version_of(manifest), all = (uint32_t)length;
    memcpy(to, MAGIC, 8);
    memcpy(to + 8, &version, 4);
    memcpy(to + 12, &all, 4);
    memcpy(to + 16, &manifest->cluster, 8);
    memcpy(to + 24, &manifest->node, 4);
    memcpy(to + 28, &manifest->nodes, 4);
    memcpy(to + 32, &manifest->serial, 8);
    memcpy(to + 40, &manifest->checkpoint, 8);
    memcpy(to + 48, &manifest->position, 8);
    memcpy(to + 56, &manifest->part_count, 4);
    const uint32_t check = crc32c(0, to, HEADER_CHECK);
    memcpy(to + HEADER_CHECK, &check, 4);
}

int manifest_encode(const struct manifest *manifest, uint8_t **bytes, size_t *length, struct error *error)
{
    size_t all = HEADER_BYTES + tokens_bytes(manifest) + CHECK_BYTES;
    if (manifest->part_count > MANIFEST_PARTS_MAX)
        return error_set(error, BANYAN_EINVAL, "a checkpoint of %" PRIu32 " parts: at most %u",
                         manifest->part_count, MANIFEST_PARTS_MAX);
    for (uint32_t i = 0; i < manifest->part_count; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        if (!name_right(part->name) || !bounds_right(part))
            return error_set(error, BANYAN_EINVAL,
                             "part %" PRIu32 " of a checkpoint, '%.50s': its name or its bounds cannot be", i,
                             part->name);
        all += part_bytes(part);
    }
    *bytes = malloc(all);
    if (!*bytes)
        return error_set(error, BANYAN_ENOMEM, "no memory for a manifest of %zu bytes", all);
    put_header(*bytes, manifest, all);
    uint8_t *to = put_tokens(*bytes + HEADER_BYTES, manifest);
    for (uint32_t i = 0; i < manifest->part_count; i++)
        to = put_part(to, &manifest->parts[i]);
    const uint32_t check = crc32c(0, *bytes, all - CHECK_BYTES);
    memcpy(to, &check, CHECK_BYTES);
    *length = all;
    return 0;
}

/* ---- reading ---- */

static int corrupt(const char *where, size_t offset, const char *what, struct error *error)
{
    return error_set(error, BANYAN_ECORRUPT,
                     "manifest in %.80s is corrupt at byte %zu: %s; nothing is changed: put the directory's "
                     "copy in its place",
                     where, offset, what);
}

static int read_header(struct manifest *manifest, const uint8_t *bytes, size_t length, const char *where,
                       uint32_t *version, struct error *error)
{
    uint32_t all, check;
    if (length < HEADER_BYTES + CHECK_BYTES)
        return corrupt(where, length, "it ends before its header does", error);
    if (memcmp(bytes, MAGIC, 8) != 0)
        return corrupt(where, 0, "it does not begin as a manifest of Banyan does", error);
    memcpy(&check, bytes + HEADER_CHECK, 4);
    if (check != crc32c(0, bytes, HEADER_CHECK))
        return corrupt(where, 0, "its header's checksum is wrong", error);
    memcpy(version, bytes + 8, 4);
    if (*version == 0 || *version > MANIFEST_VERSION)
        return error_set(
            error, BANYAN_EVERSION,
            "manifest in %.80s has format %" PRIu32
            ", this program reads format 1 to %u; nothing is changed: start the version of Banyan that "
            "wrote it",
            where, *version, MANIFEST_VERSION);
    memcpy(&all, bytes + 12, 4);
    if (all != length)
        return corrupt(where, length < all ? length : all, "it is of another length than its header says",
                       error);
    memcpy(&manifest->cluster, bytes + 16, 8);
    memcpy(&manifest->node, bytes + 24, 4);
    memcpy(&manifest->nodes, bytes + 28, 4);
    memcpy(&manifest->serial, bytes + 32, 8);
    memcpy(&manifest->checkpoint, bytes + 40, 8);
    memcpy(&manifest->position, bytes + 48, 8);
    memcpy(&manifest->part_count, bytes + 56, 4);
    memcpy(&check, bytes + length - CHECK_BYTES, 4);
    if (check != crc32c(0, bytes, length - CHECK_BYTES))
        return corrupt(where, HEADER_BYTES, "its checksum is wrong", error);
    return 0;
}

/* Reads one and sets *node, which is to be at least `least`. */
static bool get_join(struct manifest *manifest, const uint8_t *from, uint32_t least, uint32_t *node)
{
    struct manifest_join join = {0};
    memcpy(node, from, 4);
    memcpy(&join.state, from + 4, 4);
    memcpy(&join.token, from + 8, 8);
    if (*node < least || *node >= MANIFEST_JOINS_MAX || join.state == MANIFEST_JOIN_NONE ||
        join.state >= MANIFEST_JOIN_STATES || (join.state == MANIFEST_JOIN_MEANT && !join.token) ||
        (join.state == MANIFEST_JOIN_SEVERAL && join.token))
        return false;
    manifest->joins[*node] = join;
    return true;
}

/* *at: behind the header, then behind these. */
static int read_tokens(struct manifest *manifest, const uint8_t *bytes, size_t length, size_t *at,
                       const char *where, struct error *error)
{
    const size_t end = length - CHECK_BYTES;
    uint32_t count, zero, node = 0, least = 0;
    if (end - *at < TOKENS_BYTES)
        return corrupt(where, *at, "it ends before its tokens do", error);
    memcpy(&manifest->token, bytes + *at, 8);
    memcpy(&count, bytes + *at + 8, 4);
    memcpy(&zero, bytes + *at + 12, 4);
    if (zero || (!count && !manifest->token) || count > MANIFEST_JOINS_MAX ||
        count > (end - *at - TOKENS_BYTES) / JOIN_BYTES)
        return corrupt(where, *at, "what it says of tokens cannot be", error);
    *at += TOKENS_BYTES;
    for (uint32_t i = 0; i < count; i++, *at += JOIN_BYTES) {
        if (!get_join(manifest, bytes + *at, least, &node))
            return corrupt(where, *at, "what it says of a memory node that joins cannot be", error);
        least = node + 1;
    }
    return 0;
}

/* Reads the part at `from`, where `left` bytes are left. Returns how many it takes; 0: it is no part. */
static size_t get_part(struct manifest_part *part, const uint8_t *from, size_t left)
{
    uint64_t numbers[5];
    if (left < PART_BYTES)
        return 0;
    const size_t name = from[0], lower = from[1], upper = from[2], all = PART_BYTES + name + lower + upper;
    if (left < all || name > DISK_NAME_MAX || from[3] > 1)
        return 0;
    part->lower_length = from[1];
    part->upper_length = from[2];
    part->has_upper = from[3] != 0;
    memcpy(numbers, from + 4, sizeof numbers);
    part->epoch = numbers[0];
    part->sequence = numbers[1];
    part->entries = numbers[2];
    part->bytes = numbers[3];
    part->check = numbers[4];
    from += PART_BYTES;
    memcpy(part->name, from, name);
    memcpy(part->lower, from + name, lower);
    memcpy(part->upper, from + name + lower, upper);
    return strlen(part->name) == name && name_right(part->name) && bounds_right(part) ? all : 0;
}

static int read_parts(struct manifest *manifest, const uint8_t *bytes, size_t length, size_t at,
                      const char *where, struct error *error)
{
    const size_t end = length - CHECK_BYTES;
    if (manifest->part_count > MANIFEST_PARTS_MAX || manifest->part_count > (end - at) / PART_BYTES)
        return corrupt(where, 56, "it says that it has more parts than it can", error);
    if (!manifest->part_count && at != end)
        return corrupt(where, at, "something follows where no part is", error);
    manifest->parts = manifest->part_count ? calloc(manifest->part_count, sizeof *manifest->parts) : NULL;
    if (manifest->part_count && !manifest->parts)
        return error_set(error, BANYAN_ENOMEM, "no memory for a manifest of %" PRIu32 " parts",
                         manifest->part_count);
    for (uint32_t i = 0; i < manifest->part_count; i++) {
        const size_t took = get_part(&manifest->parts[i], bytes + at, end - at);
        if (!took)
            return corrupt(where, at, "what stands there is no part of a checkpoint", error);
        at += took;
    }
    return at == end ? 0 : corrupt(where, at, "something follows behind the last part", error);
}

int manifest_decode(struct manifest *manifest, const uint8_t *bytes, size_t length, const char *where,
                    struct error *error)
{
    uint32_t version = 0;
    size_t at = HEADER_BYTES;
    *manifest = (struct manifest){0};
    int status = read_header(manifest, bytes, length, where, &version, error);
    if (!status && version > 1)
        status = read_tokens(manifest, bytes, length, &at, where, error);
    if (!status)
        status = read_parts(manifest, bytes, length, at, where, error);
    if (status) {
        free(manifest->parts);
        *manifest = (struct manifest){0};
    }
    return status;
}
