/*
 * check.c - walks a store while nothing else writes: the index, and with each leaf the records that it refers
 * to, whose blocks are counted. Costs a read of everything. With a visitor's `problem` the walk continues
 * behind each problem; else it ends at the first.
 */
#include "store/record.h"

#include <stdarg.h>
#include <stdio.h>

#include "memory/memory.h"

struct check {
    struct store_session *session;
    struct store_check_report *report;
    const struct store_check_visitor *visitor;
    uint64_t now;
};

static int check_tell(struct check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int check_tell(struct check *check, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    check->report->problems++;
    if (!check->visitor->problem)
        return pool_fail(tree_session_pool(check->session->tree), BANYAN_ECORRUPT, "%s", text);
    check->visitor->problem(check->visitor->context, text);
    return 0;
}

static void check_block(struct check *check, gaddr block, uint32_t bytes)
{
    uint32_t block_bytes = memory_block_bytes(bytes);
    check->report->record_blocks++;
    check->report->record_bytes += block_bytes;
    if (check->visitor->block)
        check->visitor->block(check->visitor->context, block, block_bytes);
}

/* Reads again what was refused after a lost connection: nothing else writes, so the check goes on from here.
 */
static int check_read(struct check *check, const void *key, size_t key_length,
                      const struct format_reference *reference, enum format_part part,
                      struct store_value *value)
{
    struct store_session *session = check->session;
    int status;
    do
        status = store_record_read(session, key, key_length, reference, part, STORE_SINK_BUFFER, value);
    while (pool_session_again(tree_session_pool(session->tree), &status));
    return status;
}

/* Counts the blocks that the header in session->header names: it is valid. */
static void check_pieces(struct check *check, size_t key_length, uint64_t length)
{
    for (uint32_t i = 0; length; i++) {
        struct format_piece piece = format_record_piece(check->session->header.bytes, key_length, i);
        if (piece.block != GADDR_NULL)
            check_block(check, piece.block, format_piece_block_bytes(key_length, &piece));
        length -= piece.length;
    }
}

/* *value is 0 if the record's header is not valid. */
static int check_record(struct check *check, const void *key, size_t key_length,
                        const struct format_reference *reference, struct store_value *value)
{
    char text[GADDR_TEXT_BYTES];
    gaddr_format(reference->address, text);
    check->report->values_record++;
    /* The block is in use even if the record is damaged, for the slot is valid. Only the header tells which
     * blocks the pieces have. */
    check_block(check, reference->address, format_record_block_bytes(key_length, reference));
    int status = check_read(check, key, key_length, reference,
                            reference->room ? FORMAT_PART_HEADER : FORMAT_PART_VALUE, value);
    if (status == STORE_STALE) {
        *value = (struct store_value){0};
        return check_tell(check, "record %s: it is not the one that the index names, or it is damaged", text);
    }
    if (status || !reference->room)
        return status;
    check_pieces(check, key_length, reference->length);
    uint64_t expires = value->expires;
    status = check_read(check, key, key_length, reference, FORMAT_PART_VALUE, value);
    value->expires = expires;
    return status == STORE_STALE ? check_tell(check, "record %s: one of its pieces is damaged", text)
                                 : status;
}

static int check_entry(void *context, const void *key, size_t key_length, const void *raw, size_t raw_length)
{
    struct check *check = context;
    struct format_value slot;
    struct store_value value;
    if (!format_value_decode(raw, raw_length, &slot))
        return check_tell(check, "key '%.*s': a slot of %zu bytes (kind %u) was not written by a store",
                          (int)(key_length < 40 ? key_length : 40), (const char *)key, raw_length,
                          raw_length ? *(const uint8_t *)raw : 0u);
    if (!slot.record) {
        check->report->values_inline++;
        check->report->expired += store_expired(slot.expires, check->now);
        return 0;
    }
    int status = check_record(check, key, key_length, &slot.reference, &value);
    if (!status)
        check->report->expired += store_expired(value.expires, check->now);
    return status;
}

static void check_node(void *context, gaddr node, uint32_t bytes)
{
    const struct store_check_visitor *visitor = ((struct check *)context)->visitor;
    if (visitor->block)
        visitor->block(visitor->context, node, bytes);
}

static void check_problem(void *context, const char *text)
{
    struct check *check = context;
    check->report->problems++;
    check->visitor->problem(check->visitor->context, text);
}

int store_check_all(struct store_session *session, const struct store_check_visitor *visitor,
                    struct store_check_report *report)
{
    struct check check = {
        .session = session, .report = report, .visitor = visitor, .now = store_begin(session)};
    const struct tree_check_visitor below = {.node = check_node,
                                             .entry = check_entry,
                                             .problem = visitor->problem ? check_problem : NULL,
                                             .context = &check};
    *report = (struct store_check_report){0};
    return tree_check_all(session->tree, session->store->tree, &below, &report->tree);
}

int store_check(struct store_session *session, struct store_check_report *report,
                void (*visit_block)(void *context, gaddr block, uint32_t bytes), void *context)
{
    const struct store_check_visitor visitor = {.block = visit_block, .context = context};
    return store_check_all(session, &visitor, report);
}
