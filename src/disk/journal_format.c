/* journal_format.c - see journal_format.h: headers and records. */
#include "disk/journal_format.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

#define MAGIC      "BNYNJRNL"
#define HEAD_CHECK 60u

void journal_name(char name[JOURNAL_NAME_BYTES], uint32_t number)
{
    assert(number && number <= JOURNAL_NUMBER_MAX);
    snprintf(name, JOURNAL_NAME_BYTES, "journal-%08u", number % (JOURNAL_NUMBER_MAX + 1));
}

uint32_t journal_number(const char *name)
{
    uint32_t number = 0;
    if (strlen(name) != JOURNAL_NAME_BYTES - 1 || strncmp(name, "journal-", 8) != 0)
        return 0;
    for (const char *digit = name + 8; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return 0;
        number = number * 10 + (uint32_t)(*digit - '0');
    }
    return number;
}

void journal_head_encode(const struct journal_head *head, uint8_t bytes[JOURNAL_HEADER_BYTES])
{
    const uint32_t version = JOURNAL_VERSION;
    memset(bytes, 0, JOURNAL_HEADER_BYTES);
    memcpy(bytes, MAGIC, 8);
    memcpy(bytes + 8, &version, 4);
    memcpy(bytes + 12, &head->node, 4);
    memcpy(bytes + 16, &head->cluster, 8);
    memcpy(bytes + 24, &head->file, 4);
    memcpy(bytes + 32, &head->begin, 8);
    memcpy(bytes + 40, &head->nonce, 8);
    const uint32_t check = crc32c(0, bytes, HEAD_CHECK);
    memcpy(bytes + HEAD_CHECK, &check, 4);
}

const char *journal_head_decode(struct journal_head *head, const uint8_t bytes[JOURNAL_HEADER_BYTES],
                                uint32_t *version)
{
    uint32_t check;
    *version = 0;
    memcpy(&check, bytes + HEAD_CHECK, 4);
    if (memcmp(bytes, MAGIC, 8) != 0)
        return "it does not begin as a journal file of Banyan does";
    if (check != crc32c(0, bytes, HEAD_CHECK))
        return "its header's checksum is wrong";
    memcpy(version, bytes + 8, 4);
    if (*version != JOURNAL_VERSION)
        return "it is of another version of the format";
    *version = 0;
    memcpy(&head->node, bytes + 12, 4);
    memcpy(&head->cluster, bytes + 16, 8);
    memcpy(&head->file, bytes + 24, 4);
    memcpy(&head->begin, bytes + 32, 8);
    memcpy(&head->nonce, bytes + 40, 8);
    if (head->begin % 8 || head->begin > JOURNAL_POSITION_MAX)
        return "its header says that it begins where it cannot";
    return NULL;
}

/* The nonce goes into the checksum: a record of another file, or of an earlier use of the same one, has
 * another checksum. */
static uint32_t record_check(const uint8_t *record, uint64_t nonce)
{
    return crc32c(crc32c(0, &nonce, sizeof nonce), record + 4, JOURNAL_RECORD_BYTES - 4);
}

void journal_record_put(uint8_t *to, uint8_t kind, const void *bytes, uint32_t length)
{
    const uint32_t check = crc32c(0, bytes, length);
    assert(kind && length <= JOURNAL_LENGTH_MAX);
    memset(to, 0, JOURNAL_RECORD_BYTES);
    memcpy(to + 4, &check, 4);
    memcpy(to + 8, &length, 4);
    to[12] = kind;
    if (length)
        memcpy(to + JOURNAL_RECORD_BYTES, bytes, length);
    memset(to + JOURNAL_RECORD_BYTES + length, 0,
           journal_record_bytes(length) - JOURNAL_RECORD_BYTES - length);
}

uint32_t journal_record_seal(uint8_t *record, uint64_t nonce, uint64_t position, uint64_t synced)
{
    uint32_t length;
    assert(synced <= position);
    memcpy(&length, record + 8, 4);
    memcpy(record + 16, &position, 8);
    memcpy(record + 24, &synced, 8);
    const uint32_t check = record_check(record, nonce);
    memcpy(record, &check, 4);
    return journal_record_bytes(length);
}

bool journal_view_decode(struct journal_view *view, const uint8_t bytes[JOURNAL_RECORD_BYTES], uint64_t nonce,
                         uint64_t position)
{
    static const uint8_t zeros[3];
    uint32_t check;
    memcpy(&view->position, bytes + 16, 8);
    if (view->position != position) /* the quickest to tell */
        return false;
    memcpy(&check, bytes, 4);
    memcpy(&view->check, bytes + 4, 4);
    memcpy(&view->length, bytes + 8, 4);
    view->kind = bytes[12];
    memcpy(&view->synced, bytes + 24, 8);
    return view->kind && memcmp(bytes + 13, zeros, 3) == 0 && view->length <= JOURNAL_LENGTH_MAX &&
           view->synced <= position && check == record_check(bytes, nonce);
}
