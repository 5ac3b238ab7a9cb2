/*
 * bitfield.c - BITFIELD and BITFIELD_RO: integers of 1 to 64 bits, at any bit of a value, are read, set and
 * added to; all of a command's in one atomic step. On fibers; replies and errors are those of Redis 7.0. The
 * operations and their results lie in memory of the command's, in proportion to its arguments.
 */
#include "server/arguments.h"
#include "server/commands/bits.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include <stdlib.h>
#include <string.h>

enum field_kind { FIELD_GET, FIELD_SET, FIELD_INCRBY };
enum field_overflow { FIELD_WRAP, FIELD_SAT, FIELD_FAIL };

struct field {
    enum field_kind kind;
    enum field_overflow overflow;
    bool is_signed;
    unsigned width;
    int64_t offset, argument;
    int64_t result;
    bool failed; /* out: it would have overflowed */
};

struct fields {
    struct field *list;
    uint32_t count;
    bool writes;
    /* Bytes of the value: from the first that any operation is about, to behind the last that is written, and
     * to behind the last that is read. */
    uint64_t first, write_end, read_end;
    uint64_t whole; /* the value's length */
};

/* ---- parsing ---- */

static bool type_read(struct server_call *call, const struct resp_argument *argument, struct field *field)
{
    int64_t width = 0;
    char kind = argument->length ? argument->bytes[0] : 0;
    field->is_signed = kind == 'i';
    if ((kind != 'i' && kind != 'u') ||
        !server_integer_parse(argument->bytes + 1, argument->length - 1, &width) || width < 1 ||
        width > (kind == 'i' ? 64 : 63)) {
        resp_error(call->reply, "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not "
                                "supported but i64 is.");
        return false;
    }
    field->width = (unsigned)width;
    return true;
}

static bool overflow_read(struct server_call *call, const struct resp_argument *argument,
                          enum field_overflow *overflow)
{
    static const char *const names[] = {"WRAP", "SAT", "FAIL"};
    for (unsigned i = 0; i < 3; i++)
        if (server_argument_is(argument, names[i])) {
            *overflow = (enum field_overflow)i;
            return true;
        }
    resp_error(call->reply, "ERR Invalid OVERFLOW type specified");
    return false;
}

static void fields_add(struct fields *fields, const struct field *field)
{
    uint64_t first = (uint64_t)field->offset >> 3, end = ((uint64_t)field->offset + field->width + 7) >> 3;
    fields->first = fields->count && fields->first < first ? fields->first : first;
    if (field->kind == FIELD_GET) {
        fields->read_end = fields->read_end > end ? fields->read_end : end;
    } else {
        fields->writes = true;
        fields->write_end = fields->write_end > end ? fields->write_end : end;
    }
    fields->list[fields->count++] = *field;
}

/* False: it has replied an error. */
static bool fields_parse(struct server_call *call, struct fields *fields)
{
    enum field_overflow overflow = FIELD_WRAP;
    for (uint32_t i = 2; i < call->count; i++) {
        const struct resp_argument *name = &call->arguments[i];
        const uint32_t left = call->count - i - 1;
        struct field field = {.overflow = overflow};
        if (server_argument_is(name, "OVERFLOW") && left >= 1) {
            if (!overflow_read(call, &call->arguments[++i], &overflow))
                return false;
            continue;
        }
        if (server_argument_is(name, "GET") && left >= 2) {
            field.kind = FIELD_GET;
        } else if (server_argument_is(name, "SET") && left >= 3) {
            field.kind = FIELD_SET;
        } else if (server_argument_is(name, "INCRBY") && left >= 3) {
            field.kind = FIELD_INCRBY;
        } else {
            server_reply_syntax(call);
            return false;
        }
        if (!type_read(call, name + 1, &field) || !bits_offset(call, name + 2, field.width, &field.offset) ||
            (field.kind != FIELD_GET && !server_argument_integer(call, name + 3, &field.argument)))
            return false;
        fields_add(fields, &field);
        i += field.kind == FIELD_GET ? 2 : 3;
    }
    return true;
}

/* ---- operations ---- */

/* The bytes begin with the value's byte `first`; there are `length`, and zeros follow. */
struct field_bytes {
    uint8_t *bytes;
    uint64_t first, length;
};

static uint64_t bits_get(const struct field_bytes *bytes, const struct field *field)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < field->width; i++) {
        uint64_t bit = (uint64_t)field->offset + i, at = (bit >> 3) - bytes->first;
        value = value << 1 | (at < bytes->length ? bytes->bytes[at] >> (7 - (bit & 7)) & 1u : 0);
    }
    return value;
}

static void bits_set(const struct field_bytes *bytes, const struct field *field, uint64_t value)
{
    for (unsigned i = 0; i < field->width; i++) {
        uint64_t bit = (uint64_t)field->offset + i, at = (bit >> 3) - bytes->first;
        uint8_t mask = (uint8_t)(0x80 >> (bit & 7));
        bool on = value >> (field->width - 1 - i) & 1;
        bytes->bytes[at] = (uint8_t)((bytes->bytes[at] & ~mask) | (on ? mask : 0));
    }
}

/* The field's bits as a number. */
static int64_t field_number(const struct field *field, uint64_t bits)
{
    if (field->is_signed && field->width < 64 && bits >> (field->width - 1) & 1)
        bits |= UINT64_MAX << field->width;
    return (int64_t)bits;
}

/* What is to be stored, in *bits. False: nothing, since it would overflow. */
static bool field_next(const struct field *field, int64_t old, uint64_t *bits)
{
    const __int128 most = ((__int128)1 << (field->width - field->is_signed)) - 1;
    const __int128 least = field->is_signed ? -most - 1 : 0;
    __int128 next = field->kind == FIELD_INCRBY ? (__int128)old + field->argument
                    : field->is_signed          ? (__int128)field->argument
                                                : (__int128)(uint64_t)field->argument;
    if (next < least || next > most) {
        if (field->overflow == FIELD_FAIL)
            return false;
        if (field->overflow == FIELD_SAT)
            next = next > most ? most : least;
    }
    *bits = (uint64_t)next & (field->width < 64 ? (UINT64_C(1) << field->width) - 1 : UINT64_MAX);
    return true;
}

/* Does the operations in their order. Returns whether a byte has changed. */
static bool fields_run(struct fields *fields, const struct field_bytes *bytes)
{
    bool changed = false;
    for (uint32_t i = 0; i < fields->count; i++) {
        struct field *field = &fields->list[i];
        uint64_t had = bits_get(bytes, field), bits;
        int64_t old = field_number(field, had);
        field->result = old;
        field->failed = false;
        if (field->kind == FIELD_GET)
            continue;
        field->failed = !field_next(field, old, &bits);
        if (field->failed)
            continue;
        if (field->kind == FIELD_INCRBY)
            field->result = field_number(field, bits);
        changed = changed || bits != had;
        bits_set(bytes, field, bits);
    }
    return changed;
}

/* ---- the step ---- */

static enum store_verdict fields_aim(void *context, bool existed, uint64_t whole, struct store_edit *edit)
{
    struct fields *fields = context;
    uint64_t read_end = fields->read_end < whole ? fields->read_end : whole;
    uint64_t end = fields->write_end > read_end ? fields->write_end : read_end;
    fields->whole = whole;
    *edit = (struct store_edit){.offset = fields->first, .length = end - fields->first};
    return STORE_PUT;
}

static enum store_verdict fields_change(void *context, const struct store_edit *edit, uint8_t *bytes)
{
    struct fields *fields = context;
    bool changed = fields_run(fields, &(struct field_bytes){bytes, edit->offset, edit->length});
    return changed || fields->write_end > fields->whole ? STORE_PUT : STORE_KEEP;
}

static struct store_part fields_part(void *context, uint64_t whole)
{
    const struct fields *fields = context;
    return (struct store_part){.offset = fields->first, .length = fields->read_end - fields->first};
}

static int fields_read(struct server_call *call, const struct resp_argument *key, struct fields *fields)
{
    struct store_value value;
    int status = store_get_part(call->store, key->bytes, key->length, fields_part, fields, &value);
    server_call_count(call, !status);
    if (status == BANYAN_ENOTFOUND)
        value = (struct store_value){.length = 0};
    else if (status)
        return status;
    /* Reads change no byte. */
    fields_run(fields, &(struct field_bytes){(uint8_t *)(uintptr_t)value.bytes, fields->first, value.length});
    return 0;
}

static void fields_reply(struct server_call *call, const struct fields *fields)
{
    resp_array(call->reply, fields->count);
    for (uint32_t i = 0; i < fields->count; i++)
        if (fields->list[i].failed)
            resp_null(call->reply);
        else
            resp_integer(call->reply, fields->list[i].result);
}

static void fields_do(struct server_call *call, struct fields *fields, bool read_only)
{
    const struct resp_argument *key = &call->arguments[1];
    const struct store_editor editor = {fields_aim, fields_change, fields};
    uint64_t whole;
    int status = 0;
    if (!fields_parse(call, fields))
        return;
    if (fields->writes && read_only) {
        resp_error(call->reply, "ERR BITFIELD_RO only supports the GET subcommand");
        return;
    }
    if (!server_argument_key(call, key))
        return;
    if (fields->writes)
        status = store_edit(call->store, key->bytes, key->length, &editor, &whole, NULL);
    else
        status = fields_read(call, key, fields);
    if (!status)
        fields_reply(call, fields);
    else if (status == BANYAN_EVALUESIZE)
        server_reply_too_long(call);
    else
        server_reply_failure(call, status);
}

static void fields_start(struct server_call *call, bool read_only)
{
    struct fields fields = {.count = 0};
    const size_t bytes = (call->count / 3 + 1) * sizeof *fields.list;
    if (call->reserve && !call->reserve(call, 0, bytes)) {
        server_reply_memory(call);
        return;
    }
    fields.list = malloc(bytes);
    if (fields.list)
        fields_do(call, &fields, read_only);
    else
        server_reply_memory(call);
    free(fields.list);
    if (call->reserve)
        call->reserve(call, bytes, 0);
}

void bitfield_run(struct server_call *call)
{
    fields_start(call, false);
}

void bitfield_ro_run(struct server_call *call)
{
    fields_start(call, true);
}
