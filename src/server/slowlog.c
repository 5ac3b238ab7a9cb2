/* slowlog.c - see slowlog.h. */
#include "server/slowlog.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/arguments.h"
#include "server/state.h"

#define REDACTED "(redacted)"

void slowlog_init(struct server_slowlog *log)
{
    memset(log, 0, sizeof *log);
    log->slower_than = 10000;
    log->length_max = 128;
}

void slowlog_destroy(struct server_slowlog *log)
{
    slowlog_trim(log, 0);
}

/* ---- making an entry ---- */

/* Whether the argument is a secret, or a user's name beside one: Redis shows neither. */
static bool secret(const struct server_call *call, uint32_t index)
{
    const char *name = call->command->name;
    const struct resp_argument *arguments = call->arguments;
    if (!index)
        return false;
    if (strcmp(name, "auth") == 0)
        return true;
    if (strcmp(name, "hello") == 0)
        for (uint32_t i = 2; i < index; i++)
            if (server_argument_is(&arguments[i], "AUTH") && index - i <= 2)
                return true;
    return strcmp(name, "config") == 0 && index >= 3 && index % 2 == 1 &&
           server_argument_is(&arguments[1], "SET") &&
           server_argument_is(&arguments[index - 1], "REQUIREPASS");
}

/* What the entry shows for the argument, in `room`; returns its length. */
static size_t argument_show(const struct server_call *call, uint32_t index, char room[SLOWLOG_BYTES_MAX + 64])
{
    const struct resp_argument *argument = &call->arguments[index];
    if (index == SLOWLOG_ARGUMENTS_MAX - 1 && call->count > SLOWLOG_ARGUMENTS_MAX)
        return (size_t)sprintf(room, "... (%u more arguments)", call->count - index);
    if (secret(call, index)) {
        memcpy(room, REDACTED, sizeof REDACTED - 1);
        return sizeof REDACTED - 1;
    }
    size_t shown = argument->length < SLOWLOG_BYTES_MAX ? argument->length : SLOWLOG_BYTES_MAX;
    memcpy(room, argument->bytes, shown);
    if (shown < argument->length)
        shown += (size_t)sprintf(room + shown, "... (%zu more bytes)", argument->length - shown);
    return shown;
}

static char *text_put(struct slowlog_text *text, char *at, const char *bytes, size_t length)
{
    memcpy(at, bytes, length);
    *text = (struct slowlog_text){.length = (uint32_t)length, .bytes = at};
    return at + length;
}

static struct slowlog_entry *entry_make(const struct server_call *call, uint64_t microseconds)
{
    const struct server_connection *connection = call->connection;
    const char *address = connection_address(connection), *name = connection->name ? connection->name : "";
    char room[SLOWLOG_BYTES_MAX + 64];
    uint32_t count = call->count < SLOWLOG_ARGUMENTS_MAX ? call->count : SLOWLOG_ARGUMENTS_MAX;
    size_t bytes = strlen(address) + strlen(name);
    for (uint32_t i = 0; i < count; i++)
        bytes += argument_show(call, i, room);
    struct slowlog_entry *entry = malloc(sizeof *entry + bytes);
    if (!entry)
        return NULL;
    *entry = (struct slowlog_entry){
        .references = 1, .seconds = call->now_ms / 1000, .microseconds = microseconds, .count = count};
    char *at = (char *)(entry + 1);
    at = text_put(&entry->address, at, address, strlen(address));
    at = text_put(&entry->name, at, name, strlen(name));
    for (uint32_t i = 0; i < count; i++)
        at = text_put(&entry->arguments[i], at, room, argument_show(call, i, room));
    assert(at == (char *)(entry + 1) + bytes);
    return entry;
}

/* ---- the log ---- */

/* Under the lock. Cuts all behind the newest `keep`; returns those that nobody reads, linked, to be freed
 * outside of the lock. */
static struct slowlog_entry *cut(struct server_slowlog *log, uint64_t keep)
{
    struct slowlog_entry **end = &log->newest, *gone = NULL;
    for (uint64_t i = 0; *end && i < keep; i++)
        end = &(*end)->older;
    for (struct slowlog_entry *entry = *end, *older; entry; entry = older) {
        older = entry->older;
        log->length--;
        assert(entry->references);
        if (--entry->references == 0) {
            entry->older = gone;
            gone = entry;
        }
    }
    *end = NULL;
    return gone;
}

static void entries_free(struct slowlog_entry *entry)
{
    for (struct slowlog_entry *older; entry; entry = older) {
        older = entry->older;
        free(entry);
    }
}

void slowlog_note(struct server *server, const struct server_call *call, uint64_t nanoseconds)
{
    struct server_slowlog *log = &server->slowlog;
    uint64_t most = atomic_load_relaxed(&log->length_max);
    struct slowlog_entry *entry = most ? entry_make(call, nanoseconds / 1000) : NULL, *gone;
    spinlock_lock(&log->lock);
    if (entry) {
        entry->id = log->next_id++;
        entry->older = log->newest;
        log->newest = entry;
        log->length++;
    }
    gone = log->length > most ? cut(log, most) : NULL;
    spinlock_unlock(&log->lock);
    entries_free(gone);
}

void slowlog_trim(struct server_slowlog *log, uint64_t keep)
{
    spinlock_lock(&log->lock);
    struct slowlog_entry *gone = cut(log, keep);
    spinlock_unlock(&log->lock);
    entries_free(gone);
}

size_t slowlog_take(struct server_slowlog *log, struct slowlog_entry **entries, size_t most)
{
    size_t count = 0;
    spinlock_lock(&log->lock);
    for (struct slowlog_entry *entry = log->newest; entry && count < most; entry = entry->older) {
        entry->references++;
        entries[count++] = entry;
    }
    spinlock_unlock(&log->lock);
    return count;
}

void slowlog_give(struct server_slowlog *log, struct slowlog_entry **entries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        spinlock_lock(&log->lock);
        bool last = --entries[i]->references == 0;
        spinlock_unlock(&log->lock);
        if (last)
            free(entries[i]);
    }
}

uint64_t slowlog_length(struct server_slowlog *log)
{
    spinlock_lock(&log->lock);
    uint64_t length = log->length;
    spinlock_unlock(&log->lock);
    return length;
}
