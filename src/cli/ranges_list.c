/*
 * ranges_list.c - what `banyan ranges` shows: the ranges of the map and the processes of the board, as a
 * table or as JSON; contract in ranges.h.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ranges.h"

struct line {
    struct owner_range range; /* its strings are those below */
    char index[TREE_NAME_MAX + 1];
    uint8_t lower[FORMAT_KEY_MAX];
    bool whole; /* the index has no entry in the map */
    uint64_t keys;
};
struct numbered {
    uint16_t number;
    char name[TREE_NAME_MAX + 1];
};
struct listing {
    struct cluster_session *session;
    const struct ranges_list_options *options;
    struct owner *owner;
    struct line *lines;
    size_t count, room;
    struct numbered *indexes; /* all of the catalogue but the map */
    size_t index_count;
    bool memory; /* there was none */
    json_t *members;
};

static int listing_fail(const struct listing *listing)
{
    return pool_fail(tree_session_pool(listing->session->session), BANYAN_ENOMEM,
                     "no memory for a list of the ranges");
}

/* ---- gathering ---- */

static struct line *line_add(struct listing *listing, const char *index)
{
    if (listing->count == listing->room) {
        size_t room = listing->room ? 2 * listing->room : 64;
        struct line *lines = realloc(listing->lines, room * sizeof *lines);
        if (!lines) {
            listing->memory = true;
            return NULL;
        }
        listing->lines = lines;
        listing->room = room;
    }
    struct line *line = &listing->lines[listing->count++];
    memset(line, 0, sizeof *line);
    snprintf(line->index, sizeof line->index, "%s", index);
    return line;
}

static void index_visit(void *context, const char *name, const struct format_geometry *geometry)
{
    struct listing *listing = context;
    (void)geometry;
    if (owner_is_map(name) || listing->memory)
        return;
    struct numbered *indexes = realloc(listing->indexes, (listing->index_count + 1) * sizeof *indexes);
    listing->memory = !indexes;
    if (!indexes)
        return;
    listing->indexes = indexes;
    snprintf(indexes[listing->index_count++].name, sizeof indexes->name, "%s", name);
}

/* The map has numbers, and the owner layer knows the names of attached indexes alone. */
static int indexes_number(struct listing *listing)
{
    struct tree_session *session = listing->session->session;
    int status = tree_list(session, index_visit, listing);
    if (!status && listing->memory)
        status = listing_fail(listing);
    for (size_t i = 0; !status && i < listing->index_count; i++) {
        struct tree *tree = NULL;
        status = tree_open(session, listing->indexes[i].name, &tree);
        if (status == BANYAN_ENOTFOUND) /* dropped meanwhile */
            status = 0;
        else if (!status)
            listing->indexes[i].number = tree_number(tree);
        tree_close(tree);
    }
    return status;
}

static const char *name_of(const struct listing *listing, const struct owner_range *range)
{
    for (size_t i = 0; i < listing->index_count; i++)
        if (listing->indexes[i].number == range->number)
            return listing->indexes[i].name;
    return range->index;
}

static void range_visit(void *context, const struct owner_range *range)
{
    struct listing *listing = context;
    const char *only = listing->options->index, *name = name_of(listing, range);
    struct line *line = only && strcmp(only, name) != 0 ? NULL : line_add(listing, name);
    if (!line)
        return;
    line->range = *range;
    memcpy(line->lower, range->lower, range->lower_length);
}

/* Indexes that were never divided have no entry. */
static void whole_add(struct listing *listing, const char *name)
{
    const char *only = listing->options->index;
    if (only && strcmp(only, name) != 0)
        return;
    for (size_t i = 0; i < listing->count; i++)
        if (!strcmp(listing->lines[i].index, name))
            return;
    struct line *line = line_add(listing, name);
    if (line)
        line->whole = true;
}

static bool key_count(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    ++*(uint64_t *)context;
    return true;
}

static int keys_of_index(struct listing *listing, size_t from, size_t to)
{
    struct tree_session *session = listing->session->session;
    struct owner *owner = owner_process_owner(listing->session->process);
    struct tree *tree = NULL;
    int status = tree_open(session, listing->lines[from].index, &tree);
    bool attached = !status && !(status = owner_attach(owner, session, tree));
    for (size_t i = from; !status && i < to; i++) {
        struct tree_range range = {.from =
                                       listing->lines[i].range.lower_length ? listing->lines[i].lower : NULL,
                                   .from_length = listing->lines[i].range.lower_length};
        if (i + 1 < to) {
            range.to = listing->lines[i + 1].lower;
            range.to_length = listing->lines[i + 1].range.lower_length;
            range.to_open = true;
        }
        status = tree_scan(session, tree, &range, key_count, &listing->lines[i].keys);
    }
    const struct error error = *tree_session_error(session); /* before the next call on the session */
    if (attached)
        owner_detach(owner, session, tree);
    tree_close(tree);
    if (!status || status == BANYAN_ENOTFOUND) /* the index was dropped meanwhile */
        return 0;
    return pool_fail(tree_session_pool(session), status, "%s",
                     error.code == status ? error.text : error_name(status));
}

/* The index is attached meanwhile: else a scan would take all of it for shared, and finish under global locks
 * what is half done in leaves that only their owner may change (O5). */
static int keys_count(struct listing *listing)
{
    int status = 0;
    for (size_t from = 0, to; !status && from < listing->count; from = to) {
        for (to = from + 1; to < listing->count; to++)
            if (strcmp(listing->lines[to].index, listing->lines[from].index) != 0)
                break;
        if (listing->lines[from].index[0])
            status = keys_of_index(listing, from, to);
    }
    return status;
}

/* ---- a table ---- */

static void owner_text(const struct listing *listing, const struct line *line,
                       char text[2 * OWNER_TEXT_BYTES])
{
    char next[OWNER_TEXT_BYTES];
    owner_describe(listing->owner, line->range.owner, text);
    if (line->range.state != FORMAT_RANGE_MOVING || line->whole)
        return;
    size_t used = strlen(text);
    snprintf(text + used, 2 * OWNER_TEXT_BYTES - used, " to %s",
             owner_describe(listing->owner, line->range.next, next));
}

/* "-", or "log" and the compute nodes whose logs may have changes that are not merged. */
#define LOG_TEXT_BYTES (16u + 8u * FORMAT_RANGE_HEIRS_MAX)
static const char *log_text(const struct line *line, char text[LOG_TEXT_BYTES])
{
    int used = snprintf(text, LOG_TEXT_BYTES, "%s", line->range.logged ? "log" : "-");
    for (uint32_t i = 0; i < line->range.heir_count; i++)
        used += snprintf(text + used, LOG_TEXT_BYTES - (size_t)used, "%s%u", i ? "," : " of ",
                         line->range.heirs[i].process.compute_id);
    return text;
}

static void print_table(const struct listing *listing)
{
    const bool count = listing->options->count;
    printf("%-20s %-28s %-8s %6s %8s%s  %-10s  %s\n", "INDEX", "FROM", "STATE", "EPOCH", "VERSION",
           count ? "       KEYS" : "", "LOG", "OWNER");
    for (size_t i = 0; i < listing->count; i++) {
        const struct line *line = &listing->lines[i];
        char lower[RANGES_KEY_TEXT], owner[2 * OWNER_TEXT_BYTES], keys[32] = "", log[LOG_TEXT_BYTES];
        ranges_key_format(line->lower, line->range.lower_length, lower);
        owner_text(listing, line, owner);
        if (count)
            snprintf(keys, sizeof keys, " %10" PRIu64, line->keys);
        if (line->whole)
            printf("%-20s %-28s %-8s %6s %8s%s  %-10s  %s\n", line->index, "-", "-", "-", "-", keys, "-",
                   "shared");
        else
            printf("%-20s %-28s %-8s %6" PRIu64 " %8" PRIu64 "%s  %-10s  %s\n",
                   line->index[0] ? line->index : "(dropped)", lower[0] ? lower : "-",
                   owner_state_names[line->range.state], line->range.epoch, line->range.version, keys,
                   log_text(line, log), owner);
    }
}

static void member_print(void *context, const struct owner_member *member)
{
    const struct listing *listing = context;
    char text[OWNER_TEXT_BYTES];
    printf("%-10u %016" PRIx64 " %-9s %-6s %-4s %8" PRIu64 "  %s\n", member->process.compute_id,
           member->process.instance, member->alive ? "connected" : "LOST", member->willing ? "auto" : "none",
           member->logs ? "log" : "-", member->adopted,
           owner_describe(listing->owner, member->process, text));
}

/* ---- JSON ---- */

static json_t *process_json(const struct listing *listing, struct fabric_process process)
{
    char text[OWNER_TEXT_BYTES], instance[20];
    if (!process.compute_id)
        return json_null();
    snprintf(instance, sizeof instance, "%016" PRIx64, process.instance);
    owner_describe(listing->owner, process, text);
    return json_pack("{s:i, s:s, s:s%}", "id", (int)process.compute_id, "instance", instance, "text", text,
                     strlen(text));
}

static json_t *heirs_json(const struct listing *listing, const struct line *line)
{
    json_t *heirs = json_array();
    for (uint32_t i = 0; i < line->range.heir_count; i++)
        json_array_append_new(heirs, process_json(listing, line->range.heirs[i].process));
    return heirs;
}

static json_t *line_json(const struct listing *listing, const struct line *line)
{
    char lower[RANGES_KEY_TEXT], hexadecimal[2 * FORMAT_KEY_MAX + 1] = "";
    ranges_key_format(line->lower, line->range.lower_length, lower);
    for (uint32_t i = 0; i < line->range.lower_length; i++)
        snprintf(hexadecimal + 2 * i, 3, "%02x", line->lower[i]);
    json_t *json =
        json_pack("{s:s, s:b, s:s, s:s, s:o}", "index", line->index, "in_map", !line->whole, "from", lower,
                  "from_hex", hexadecimal, "owner", process_json(listing, line->range.owner));
    if (json && !line->whole) {
        json_object_set_new(json, "number", json_integer(line->range.number));
        json_object_set_new(json, "state", json_string(owner_state_names[line->range.state]));
        json_object_set_new(json, "next", process_json(listing, line->range.next));
        json_object_set_new(json, "epoch", json_integer((json_int_t)line->range.epoch));
        json_object_set_new(json, "version", json_integer((json_int_t)line->range.version));
        json_object_set_new(json, "logged", json_boolean(line->range.logged));
        json_object_set_new(json, "heirs", heirs_json(listing, line));
    }
    if (json && listing->options->count)
        json_object_set_new(json, "keys", json_integer((json_int_t)line->keys));
    return json;
}

static void member_json(void *context, const struct owner_member *member)
{
    struct listing *listing = context;
    json_array_append_new(listing->members,
                          json_pack("{s:o, s:b, s:b, s:b, s:I}", "process",
                                    process_json(listing, member->process), "connected", member->alive,
                                    "wants_ranges", member->willing, "keeps_log", member->logs, "adopted",
                                    (json_int_t)member->adopted));
}

static int print_json(struct listing *listing)
{
    json_t *ranges = json_array();
    listing->members = json_array();
    int status = owner_members(listing->owner, listing->session->session, member_json, listing);
    for (size_t i = 0; i < listing->count; i++)
        json_array_append_new(ranges, line_json(listing, &listing->lines[i]));
    json_t *json = json_pack("{s:o, s:o}", "ranges", ranges, "processes", listing->members);
    if (!status && (!json || json_dumpf(json, stdout, JSON_INDENT(2)) || putchar('\n') == EOF))
        status = listing_fail(listing);
    json_decref(json);
    return status;
}

/* ---- both ---- */

int ranges_list(struct cluster_session *session, const struct ranges_list_options *options)
{
    struct listing listing = {
        .session = session, .options = options, .owner = owner_process_owner(session->process)};
    int status = indexes_number(&listing);
    if (!status)
        status = owner_list(listing.owner, session->session, range_visit, &listing);
    for (size_t i = 0; !status && i < listing.index_count; i++)
        whole_add(&listing, listing.indexes[i].name);
    if (!status && listing.memory)
        status = listing_fail(&listing);
    if (!status && options->index && !listing.count)
        status = pool_fail(tree_session_pool(session->session), BANYAN_ENOTFOUND,
                           "there is no index named '%.63s'", options->index);
    for (size_t i = 0; i < listing.count; i++) /* the lines lie where they stay now */
        listing.lines[i].range.lower = listing.lines[i].lower;
    if (!status && options->count)
        status = keys_count(&listing);
    if (!status && options->json)
        status = print_json(&listing);
    else if (!status) {
        print_table(&listing);
        printf("\n%-10s %-16s %-9s %-6s %-4s %8s  %s\n", "COMPUTE", "INSTANCE", "STATE", "WANTS", "LOG",
               "ADOPTED", "PROCESS");
        status = owner_members(listing.owner, session->session, member_print, &listing);
    }
    free(listing.lines);
    free(listing.indexes);
    return status;
}

struct naming {
    struct owner *owner;
    char *text;
    size_t size, used;
};

static void member_name(void *context, const struct owner_member *member)
{
    struct naming *naming = context;
    char text[OWNER_TEXT_BYTES];
    int length = member->alive ? snprintf(naming->text + naming->used, naming->size - naming->used, "%s%s",
                                          naming->used ? ", " : "",
                                          owner_describe(naming->owner, member->process, text))
                               : 0;
    if (length > 0 && (size_t)length < naming->size - naming->used)
        naming->used += (size_t)length;
}

void ranges_members_text(struct cluster_session *session, char *text, size_t size)
{
    struct naming naming = {owner_process_owner(session->process), text, size, 0};
    owner_members(naming.owner, session->session, member_name, &naming);
    if (!naming.used)
        snprintf(text, size, "none");
}
