/*
 * fuzz_resp.c - the RESP parser on arbitrary bytes: whole, and in pieces that the input itself chooses, in
 * buffers of exactly their size, so that the address sanitizer sees every access beyond them. Both must give
 * the same requests. Their arguments then go through the writer.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/resp_parser.h"
#include "server/resp_writer.h"

static const struct resp_limits limits = {.bulk_max = 4096, .arguments_max = 64, .inline_max = 1024};

static void check(bool condition)
{
    if (!condition)
        abort();
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return (hash ^ length) * UINT64_C(0x100000001b3);
}

static uint64_t request_hash(const struct resp_parser *parser, uint64_t hash)
{
    struct resp_writer writer;
    resp_writer_init(&writer, 3, 1 << 16);
    resp_begin(&writer);
    for (uint32_t i = 0; i < parser->count; i++) {
        hash = mix(hash, parser->arguments[i].bytes, parser->arguments[i].length);
        resp_bulk(&writer, parser->arguments[i].bytes, parser->arguments[i].length);
        resp_error(&writer, "ERR '%.*s'",
                   (int)(parser->arguments[i].length < 128 ? parser->arguments[i].length : 128),
                   parser->arguments[i].bytes);
    }
    resp_end(&writer);
    resp_writer_free(&writer);
    return hash;
}

/* All requests of the input, `step` bytes more at a time. */
static uint64_t run(const uint8_t *data, size_t size, size_t step)
{
    struct resp_parser parser;
    uint64_t hash = 1;
    size_t begin = 0, there = 0;
    char *buffer = NULL;
    enum resp_status status = RESP_MORE;
    resp_parser_init(&parser);
    while (status != RESP_BROKEN && (there < size || status != RESP_MORE)) {
        size_t consumed = 0;
        if (status == RESP_MORE) {
            there = size - there < step ? size : there + step;
            char *larger = malloc(there - begin + 1); /* it moves each time */
            check(larger != NULL);
            memcpy(larger, data + begin, there - begin);
            free(buffer);
            buffer = larger;
        }
        status = resp_parse(&parser, &limits, buffer, there - begin, &consumed);
        check(status != RESP_NO_MEMORY);
        if (status == RESP_MORE)
            check(parser.wanted > there - begin);
        if (status != RESP_COMPLETE && status != RESP_EMPTY)
            continue;
        check(consumed > 0 && consumed <= there - begin);
        if (status == RESP_COMPLETE) {
            check(parser.count > 0 && parser.count <= limits.arguments_max);
            hash = request_hash(&parser, hash);
        }
        begin += consumed;
        memmove(buffer, buffer + consumed, there - begin);
    }
    hash = mix(hash, parser.error, status == RESP_BROKEN ? strlen(parser.error) : 0);
    resp_parser_free(&parser);
    free(buffer);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 16)
        return 0;
    uint64_t whole = run(data + 1, size - 1, size);
    uint64_t pieces = run(data + 1, size - 1, 1 + data[0] % 17u);
    check(whole == pieces);
    return 0;
}
