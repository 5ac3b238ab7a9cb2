/* rdb.c - see rdb.h. */
#include "archive/rdb.h"

#include <inttypes.h>
#include <lzf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((uint64_t)1 << 20) /* what is stepped over goes through the buffer in pieces */

enum opcode {
    RDB_SLOT_INFO = 0xf4,
    RDB_FUNCTION2 = 0xf5,
    RDB_FUNCTION_BEFORE_GA = 0xf6,
    RDB_MODULE_AUX = 0xf7,
    RDB_IDLE = 0xf8,
    RDB_FREQUENCY = 0xf9,
    RDB_AUX = 0xfa,
    RDB_RESIZE = 0xfb,
    RDB_EXPIRES_MS = 0xfc,
    RDB_EXPIRES_S = 0xfd,
    RDB_SELECT = 0xfe,
    RDB_END = 0xff,
};

enum type {
    RDB_STRING = 0,
    RDB_LIST,
    RDB_SET,
    RDB_ZSET,
    RDB_HASH,
    RDB_ZSET_2,
    RDB_MODULE_BEFORE_GA,
    RDB_MODULE,
    RDB_HASH_ZIPMAP = 9,
    RDB_LIST_ZIPLIST,
    RDB_SET_INTSET,
    RDB_ZSET_ZIPLIST,
    RDB_HASH_ZIPLIST,
    RDB_LIST_QUICKLIST,
    RDB_STREAM,
    RDB_HASH_LISTPACK,
    RDB_ZSET_LISTPACK,
    RDB_LIST_QUICKLIST_2,
    RDB_STREAM_2,
    RDB_SET_LISTPACK,
    RDB_STREAM_3,
    RDB_HASH_EXPIRES_BEFORE_GA,
    RDB_HASH_LISTPACK_EXPIRES_BEFORE_GA,
    RDB_HASH_EXPIRES,
    RDB_HASH_LISTPACK_EXPIRES,
};

/* How lengths begin; and what stands in place of one. */
enum { LENGTH_6, LENGTH_14, LENGTH_32_64, LENGTH_SPECIAL };
enum { SPECIAL_INT8, SPECIAL_INT16, SPECIAL_INT32, SPECIAL_LZF };

struct text {
    uint8_t *bytes; /* owned */
    size_t length, capacity;
    bool left_out; /* longer than its limit: it was stepped over */
};

struct rdb {
    struct source *source;
    struct error *error;
    const struct rdb_options *options;
    archive_visit_function *visit;
    void *context;
    struct rdb_counts *counts;
    unsigned version;
    uint64_t crc, crc_table[256];
    uint64_t database, expires;
    struct text key, value;
};

/* ---- the checksum: CRC-64 as Redis has it (Jones's polynomial, reflected) ---- */

static void crc_prepare(struct rdb *rdb)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t crc = byte;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ UINT64_C(0x95ac9329ac4bc9b5) : crc >> 1;
        rdb->crc_table[byte] = crc;
    }
}

static void crc_add(struct rdb *rdb, const uint8_t *bytes, size_t length)
{
    uint64_t crc = rdb->crc;
    for (size_t i = 0; i < length; i++)
        crc = rdb->crc_table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    rdb->crc = crc;
}

/* ---- bytes and numbers ---- */

static int take(struct rdb *rdb, uint64_t length, const char *what, const uint8_t **bytes)
{
    int status = source_take(rdb->source, length, what, bytes, rdb->error);
    if (!status)
        crc_add(rdb, *bytes, (size_t)length);
    return status;
}

static int skip(struct rdb *rdb, uint64_t length, const char *what)
{
    const uint8_t *bytes;
    int status = 0;
    for (uint64_t step; length > 0 && !status; length -= step) {
        step = length < PIECE ? length : PIECE;
        status = take(rdb, step, what, &bytes);
    }
    return status;
}

static int byte_get(struct rdb *rdb, const char *what, uint8_t *value)
{
    const uint8_t *bytes;
    int status = take(rdb, 1, what, &bytes);
    *value = status ? 0 : *bytes;
    return status;
}

/* *special: it is no length, but says how a string is written. */
static int length_or_special(struct rdb *rdb, uint64_t *length, bool *special)
{
    const uint8_t *bytes;
    uint8_t first;
    int status = byte_get(rdb, "a length", &first);
    *special = false;
    *length = first & 63;
    if (status || first >> 6 == LENGTH_6)
        return status;
    if (first >> 6 == LENGTH_SPECIAL) {
        *special = true;
        return 0;
    }
    const bool wide = first == 0x81;
    const unsigned more = first >> 6 == LENGTH_14 ? 1 : wide ? 8 : 4;
    if (first >> 6 == LENGTH_32_64) {
        if (first != 0x80 && first != 0x81)
            return source_corrupt(rdb->source, rdb->source->position - 1, rdb->error,
                                  "no length begins with %02x", first);
        *length = 0;
    }
    status = take(rdb, more, "a length", &bytes);
    for (unsigned i = 0; i < more && !status; i++)
        *length = *length << 8 | bytes[i];
    return status;
}

static int length_get(struct rdb *rdb, uint64_t *length)
{
    bool special;
    int status = length_or_special(rdb, length, &special);
    if (!status && special)
        return source_corrupt(rdb->source, rdb->source->position - 1, rdb->error,
                              "a string stands where a length belongs");
    return status;
}

/* ---- strings ---- */

static int reserve(struct rdb *rdb, struct text *text, size_t length)
{
    if (length <= text->capacity && text->bytes)
        return 0;
    uint8_t *grown = realloc(text->bytes, length ? length : 1);
    if (!grown)
        return error_set(rdb->error, BANYAN_ENOMEM, "%.60s: no memory for a string of %zu bytes",
                         rdb->source->name, length);
    text->bytes = grown;
    text->capacity = length ? length : 1;
    return 0;
}

static int integer_get(struct rdb *rdb, unsigned size, struct text *text)
{
    const uint8_t *bytes;
    uint32_t number = 0;
    int status = take(rdb, size, "a number", &bytes);
    if (status || !text)
        return status;
    for (unsigned i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    const int32_t value = size == 1 ? (int8_t)number : size == 2 ? (int16_t)number : (int32_t)number;
    status = reserve(rdb, text, 16);
    if (!status)
        text->length = (size_t)snprintf((char *)text->bytes, 16, "%" PRId32, value);
    return status;
}

static int lzf_get(struct rdb *rdb, uint64_t most, struct text *text)
{
    const uint8_t *bytes;
    uint64_t packed, length;
    const uint64_t at = rdb->source->position;
    int status = length_get(rdb, &packed);
    if (!status)
        status = length_get(rdb, &length);
    if (status)
        return status;
    /* A byte of LZF stands for at most 264 / 3 others. */
    if (packed > UINT32_MAX || length > UINT32_MAX || length > packed * 100)
        return source_corrupt(rdb->source, at, rdb->error, "a compressed string of impossible length");
    if (text)
        text->left_out = length > most;
    if (!text || text->left_out)
        return skip(rdb, packed, "a compressed string");
    status = take(rdb, packed, "a compressed string", &bytes);
    if (!status)
        status = reserve(rdb, text, (size_t)length);
    if (status)
        return status;
    text->length = (size_t)length;
    if (lzf_decompress(bytes, (unsigned)packed, text->bytes, (unsigned)length) != length)
        return source_corrupt(rdb->source, at, rdb->error, "a compressed string does not unpack");
    return 0;
}

/* text NULL: it is stepped over, as is a longer one than `most`. */
static int string_get(struct rdb *rdb, uint64_t most, struct text *text)
{
    const uint8_t *bytes;
    uint64_t length;
    bool special;
    int status = length_or_special(rdb, &length, &special);
    if (status)
        return status;
    if (text)
        text->left_out = false;
    if (special && length <= SPECIAL_INT32)
        return integer_get(rdb, 1u << length, text);
    if (special && length == SPECIAL_LZF)
        return lzf_get(rdb, most, text);
    if (special)
        return source_corrupt(rdb->source, rdb->source->position - 1, rdb->error,
                              "no string is written in way %" PRIu64, length);
    if (text)
        text->left_out = length > most;
    if (!text || text->left_out)
        return skip(rdb, length, "a string");
    status = take(rdb, length, "a string", &bytes);
    if (!status)
        status = reserve(rdb, text, (size_t)length);
    if (!status && length)
        memcpy(text->bytes, bytes, (size_t)length);
    text->length = (size_t)length;
    return status;
}

static int string_skip(struct rdb *rdb)
{
    return string_get(rdb, 0, NULL);
}

/* ---- what is stepped over ---- */

static int strings_skip(struct rdb *rdb, unsigned each, unsigned bytes_behind)
{
    uint64_t count;
    int status = length_get(rdb, &count);
    for (; count > 0 && !status; count--) {
        for (unsigned i = 0; i < each && !status; i++)
            status = string_skip(rdb);
        if (!status && bytes_behind)
            status = skip(rdb, bytes_behind, "a score");
    }
    return status;
}

/* Members with scores as text. */
static int zset_skip(struct rdb *rdb)
{
    uint64_t count;
    uint8_t length;
    int status = length_get(rdb, &count);
    for (; count > 0 && !status; count--) {
        status = string_skip(rdb);
        if (!status)
            status = byte_get(rdb, "a score", &length);
        if (!status && length < 253)
            status = skip(rdb, length, "a score");
    }
    return status;
}

/* Pairs of a number and a string. */
static int quicklist_skip(struct rdb *rdb)
{
    uint64_t count, container;
    int status = length_get(rdb, &count);
    for (; count > 0 && !status; count--) {
        status = length_get(rdb, &container);
        if (!status)
            status = string_skip(rdb);
    }
    return status;
}

static int lengths_skip(struct rdb *rdb, unsigned count)
{
    uint64_t ignored;
    int status = 0;
    for (; count > 0 && !status; count--)
        status = length_get(rdb, &ignored);
    return status;
}

static int consumer_skip(struct rdb *rdb, uint8_t type)
{
    uint64_t pending;
    int status = string_skip(rdb);
    if (!status)
        status = skip(rdb, type >= RDB_STREAM_3 ? 16 : 8, "a consumer");
    if (!status)
        status = length_get(rdb, &pending);
    for (; !status && pending > 0; pending--)
        status = skip(rdb, 16, "a consumer");
    return status;
}

static int group_skip(struct rdb *rdb, uint8_t type)
{
    uint64_t pending, consumers;
    int status = string_skip(rdb);
    if (!status)
        status = lengths_skip(rdb, type >= RDB_STREAM_2 ? 3 : 2);
    if (!status)
        status = length_get(rdb, &pending);
    for (; !status && pending > 0; pending--) {
        status = skip(rdb, 24, "a group of consumers");
        if (!status)
            status = lengths_skip(rdb, 1);
    }
    if (!status)
        status = length_get(rdb, &consumers);
    for (; !status && consumers > 0; consumers--)
        status = consumer_skip(rdb, type);
    return status;
}

static int stream_skip(struct rdb *rdb, uint8_t type)
{
    uint64_t groups;
    int status = strings_skip(rdb, 2, 0);
    if (!status)
        status = lengths_skip(rdb, type >= RDB_STREAM_2 ? 8 : 3);
    if (!status)
        status = length_get(rdb, &groups);
    for (; !status && groups > 0; groups--)
        status = group_skip(rdb, type);
    return status;
}

/* Values that say what they are, up to the one that says that it is the end. */
static int module_skip(struct rdb *rdb)
{
    enum { MODULE_END, MODULE_SIGNED, MODULE_UNSIGNED, MODULE_FLOAT, MODULE_DOUBLE, MODULE_STRING };
    uint64_t what;
    int status;
    while (!(status = length_get(rdb, &what)) && what != MODULE_END) {
        if (what == MODULE_SIGNED || what == MODULE_UNSIGNED)
            status = lengths_skip(rdb, 1);
        else if (what == MODULE_FLOAT || what == MODULE_DOUBLE)
            status = skip(rdb, what == MODULE_FLOAT ? 4 : 8, "a module's number");
        else if (what == MODULE_STRING)
            status = string_skip(rdb);
        else
            status = source_corrupt(rdb->source, rdb->source->position - 1, rdb->error,
                                    "a module's value of kind %" PRIu64, what);
        if (status)
            return status;
    }
    return status;
}

/* Fields with their expiries. */
static int hash_expires_skip(struct rdb *rdb)
{
    uint64_t count;
    int status = skip(rdb, 8, "a hash");
    if (!status)
        status = length_get(rdb, &count);
    for (; !status && count > 0; count--) {
        status = lengths_skip(rdb, 1);
        if (!status)
            status = string_skip(rdb);
        if (!status)
            status = string_skip(rdb);
    }
    return status;
}

static int unknown(struct rdb *rdb, unsigned what)
{
    return error_set(rdb->error, BANYAN_ENOTSUP,
                     "%.60s, byte %" PRIu64 ": something of kind %u, which this program does not know",
                     rdb->source->name, rdb->source->position - 1, what);
}

static int value_skip(struct rdb *rdb, uint8_t type)
{
    int status;
    switch (type) {
    case RDB_STRING:
    case RDB_HASH_ZIPMAP:
    case RDB_LIST_ZIPLIST:
    case RDB_SET_INTSET:
    case RDB_ZSET_ZIPLIST:
    case RDB_HASH_ZIPLIST:
    case RDB_HASH_LISTPACK:
    case RDB_ZSET_LISTPACK:
    case RDB_SET_LISTPACK:
        return string_skip(rdb);
    case RDB_LIST:
    case RDB_SET:
    case RDB_LIST_QUICKLIST:
        return strings_skip(rdb, 1, 0);
    case RDB_HASH:
        return strings_skip(rdb, 2, 0);
    case RDB_ZSET:
        return zset_skip(rdb);
    case RDB_ZSET_2:
        return strings_skip(rdb, 1, 8);
    case RDB_LIST_QUICKLIST_2:
        return quicklist_skip(rdb);
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3:
        return stream_skip(rdb, type);
    case RDB_MODULE:
        status = lengths_skip(rdb, 1);
        return status ? status : module_skip(rdb);
    case RDB_HASH_EXPIRES:
        return hash_expires_skip(rdb);
    case RDB_HASH_LISTPACK_EXPIRES:
        status = skip(rdb, 8, "a hash");
        return status ? status : string_skip(rdb);
    default:
        return unknown(rdb, type);
    }
}

/* ---- keys ---- */

static void example_set(struct rdb_counts *counts, const struct text *key)
{
    size_t length = key->left_out ? 0 : key->length;
    if (counts->example[0])
        return;
    if (key->left_out)
        snprintf(counts->example, sizeof counts->example, "a key of more than %u bytes", ARCHIVE_KEY_MAX);
    for (size_t i = 0; i < length && i < sizeof counts->example - 1; i++)
        counts->example[i] = (char)(key->bytes[i] > ' ' && key->bytes[i] < 127 ? key->bytes[i] : '?');
}

static int string_visit(struct rdb *rdb)
{
    int status = string_get(rdb, ARCHIVE_VALUE_MAX, &rdb->value);
    if (status)
        return status;
    if (rdb->key.left_out || !rdb->key.length || rdb->value.left_out) {
        rdb->counts->too_long++;
        example_set(rdb->counts, &rdb->key);
        return 0;
    }
    rdb->counts->strings++;
    const struct archive_entry entry = {.key = rdb->key.bytes,
                                        .key_length = rdb->key.length,
                                        .value = rdb->value.bytes,
                                        .value_length = rdb->value.length,
                                        .expires = rdb->expires};
    return rdb->visit(rdb->context, &entry, rdb->error);
}

static int key_read(struct rdb *rdb, uint8_t type)
{
    int status = string_get(rdb, ARCHIVE_KEY_MAX, &rdb->key);
    if (status)
        return status;
    if (rdb->database != rdb->options->database) {
        rdb->counts->other_databases++;
        status = value_skip(rdb, type);
    } else if (type == RDB_STRING) {
        status = string_visit(rdb);
    } else {
        rdb->counts->others++;
        example_set(rdb->counts, &rdb->key);
        status = value_skip(rdb, type);
    }
    rdb->expires = 0;
    return status;
}

/* ---- the file ---- */

static int expires_read(struct rdb *rdb, uint8_t opcode)
{
    const uint8_t *bytes;
    const unsigned size = opcode == RDB_EXPIRES_MS ? 8 : 4;
    uint64_t number = 0;
    int status = take(rdb, size, "an expiry", &bytes);
    for (unsigned i = size; i-- > 0 && !status;)
        number = number << 8 | bytes[i];
    /* A time before 1970, which Redis allows, has passed as well. */
    const int64_t signed_ms = size == 8 ? (int64_t)number : (int64_t)(int32_t)(uint32_t)number * 1000;
    rdb->expires = signed_ms > 0 ? (uint64_t)signed_ms : 1;
    return status;
}

static int opcode_read(struct rdb *rdb, uint8_t opcode)
{
    int status;
    switch (opcode) {
    case RDB_EXPIRES_MS:
    case RDB_EXPIRES_S:
        return expires_read(rdb, opcode);
    case RDB_SELECT:
        return length_get(rdb, &rdb->database);
    case RDB_RESIZE:
        return lengths_skip(rdb, 2);
    case RDB_AUX:
        status = string_skip(rdb);
        return status ? status : string_skip(rdb);
    case RDB_FREQUENCY:
        return skip(rdb, 1, "a frequency");
    case RDB_IDLE:
        return lengths_skip(rdb, 1);
    case RDB_MODULE_AUX:
        status = lengths_skip(rdb, 1);
        return status ? status : module_skip(rdb);
    case RDB_FUNCTION2:
        return string_skip(rdb);
    case RDB_SLOT_INFO:
        return lengths_skip(rdb, 3);
    default:
        return opcode < RDB_SLOT_INFO ? key_read(rdb, opcode) : unknown(rdb, opcode);
    }
}

bool rdb_begins(const uint8_t *bytes, size_t length)
{
    return length >= 9 && !memcmp(bytes, "REDIS", 5);
}

static int header_read(struct rdb *rdb)
{
    const uint8_t *bytes;
    int status = take(rdb, 9, "its header", &bytes);
    if (status)
        return status;
    if (!rdb_begins(bytes, 9))
        return source_corrupt(rdb->source, 0, rdb->error, "this is no snapshot of Redis");
    for (unsigned i = 5; i < 9; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return source_corrupt(rdb->source, i, rdb->error, "a snapshot of Redis without a version");
        rdb->version = rdb->version * 10 + (unsigned)(bytes[i] - '0');
    }
    if (rdb->version == 0 || rdb->version > RDB_VERSION_MAX)
        return error_set(rdb->error, BANYAN_EVERSION,
                         "%.60s is of version %u of Redis's format; this program knows 1 to %u",
                         rdb->source->name, rdb->version, RDB_VERSION_MAX);
    return 0;
}

static int end_read(struct rdb *rdb)
{
    const uint8_t *bytes;
    const uint64_t crc = rdb->crc, at = rdb->source->position;
    uint64_t written = 0;
    if (rdb->version < 5)
        return 0;
    int status = take(rdb, 8, "its checksum", &bytes);
    for (unsigned i = 8; i-- > 0 && !status;)
        written = written << 8 | bytes[i];
    if (!status && written && written != crc) /* 0: Redis was told to write none */
        return source_corrupt(rdb->source, at, rdb->error,
                              "the snapshot's checksum is wrong: what was read of it is not certain");
    return status;
}

int rdb_read(struct source *source, const struct rdb_options *options, archive_visit_function *visit,
             void *context, struct rdb_counts *counts, struct error *error)
{
    struct rdb rdb = {.source = source,
                      .error = error,
                      .options = options,
                      .visit = visit,
                      .context = context,
                      .counts = counts};
    uint8_t opcode = 0;
    crc_prepare(&rdb);
    int status = header_read(&rdb);
    while (!status) {
        status = byte_get(&rdb, "the snapshot: its end is missing", &opcode);
        if (status || opcode == RDB_END)
            break;
        status = opcode_read(&rdb, opcode);
    }
    if (!status)
        status = end_read(&rdb);
    free(rdb.key.bytes);
    free(rdb.value.bytes);
    return status;
}
