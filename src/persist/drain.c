/* drain.c - see drain.h. */
#include "persist/drain.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "format/record.h"
#include "memory/request.h"
#include "persist/carried.h"
#include "persist/format.h"
#include "persist/names.h"
#include "persist/pieces.h"

#define NODES_MAX 64u
#define ASKER     1u /* the compute id that calls give; they only look, so any will do */

/* A frame that is copied, and whose place may get another one still. */
struct copied {
    uint32_t position, bytes;
    uint64_t first; /* of its sequences, which no other frame of the segment has */
};

struct copied_list {
    struct copied *items; /* owned; positions ascend */
    uint32_t count, capacity;
};

/* A segment that a memory node has handed out, with the use of it that was met last. */
struct segment {
    uint16_t node;
    bool listed; /* in this pass */
    gaddr address;
    uint64_t serial;             /* of its handing out */
    uint64_t nonce;              /* 0: none was met */
    uint64_t instance, sequence; /* of this use: the process's; the greatest that is copied */
    uint32_t size;
    uint32_t low;   /* all blocks below are copied for good */
    uint32_t final; /* below it no frame takes another one's place any more */
    uint8_t *done;  /* owned: a bit for each block that is copied for good */
    struct copied_list copied;
};

struct persist_drain {
    const struct fabric_target *targets[NODES_MAX];
    uint16_t count;
    struct journal *journal;
    struct segment *segments; /* owned */
    uint32_t segment_count, segment_capacity;
    struct persist_pieces *pieces;   /* owned */
    struct persist_carried *carried; /* owned: of this pass */
    struct persist_brought *brought; /* owned */
    uint64_t looked;                 /* task_now when the last whole pass began */
    uint64_t instance, first;        /* of the frame whose entries are looked at */
    struct persist_names *names;     /* owned; NULL: the catalogue lies elsewhere */
    struct copied_list spare;
    uint8_t *image;  /* owned: of the segment that is looked at */
    uint8_t *record; /* owned: JOURNAL_LENGTH_MAX */
    uint8_t *header; /* owned: FORMAT_RECORD_HEADER_MAX */
    struct persist_drain_stats stats;
};

/* ---- the pool, and the journal ---- */

/* False: there is no such place here. */
static bool pool_read(const struct persist_drain *drain, gaddr address, uint8_t *to, uint64_t bytes)
{
    const uint16_t node = gaddr_node(address);
    const struct fabric_target *target = node < drain->count ? drain->targets[node] : NULL;
    if (!target || gaddr_offset(address) > target->pool_bytes ||
        bytes > target->pool_bytes - gaddr_offset(address))
        return false;
    atomic_copy_from(to, target->pool + gaddr_offset(address), bytes);
    return true;
}

static bool is_here(const struct persist_drain *drain, gaddr address)
{
    const uint16_t node = gaddr_node(address);
    return node < drain->count && drain->targets[node];
}

/* What lies on another memory node, and is carried by the frame that is looked at. False: it is not. */
static bool carried_read(const struct persist_drain *drain, gaddr address, uint8_t *to, uint32_t bytes)
{
    uint32_t length;
    gaddr at;
    for (uint32_t offset = 0; offset < bytes; offset += length) {
        if (!persist_carried_find(drain->carried, drain->instance, drain->first, address, offset, &length,
                                  &at) ||
            length > bytes - offset || (to && !pool_read(drain, at, to + offset, length)))
            return false;
    }
    return true;
}

static bool record_read(const struct persist_drain *drain, gaddr address, uint8_t *to, uint32_t bytes)
{
    return is_here(drain, address) ? pool_read(drain, address, to, bytes)
                                   : carried_read(drain, address, to, bytes);
}

static int append(struct persist_drain *drain, enum persist_kind kind, uint32_t length, struct error *error)
{
    uint64_t position, safe;
    int status = 0;
    if (!journal_has_room(drain->journal, length))
        status = journal_sync(drain->journal, &safe, error);
    if (!status)
        status = journal_append(drain->journal, (uint8_t)kind, drain->record, length, &position, error);
    if (!status)
        drain->stats.bytes += length;
    return status;
}

/* Behind the address the bytes stand in drain->record already. */
static int append_at(struct persist_drain *drain, enum persist_kind kind, gaddr address, uint32_t bytes,
                     struct error *error)
{
    memcpy(drain->record, &address, PERSIST_BLOCK_HEADER);
    int status = append(drain, kind, PERSIST_BLOCK_HEADER + bytes, error);
    drain->stats.blocks += !status;
    return status;
}

/* A record's block, in whose place the journal may have a piece of before. */
static int append_record(struct persist_drain *drain, gaddr address, uint32_t bytes, struct error *error)
{
    persist_pieces_drop(drain->pieces, address);
    return append_at(drain, PERSIST_BLOCK, address, bytes, error);
}

/* ---- what an entry refers to ---- */

/* P17. What owners have brought until now. */
static int brought_copy(struct persist_drain *drain, struct error *error)
{
    const struct persist_brought_piece *piece;
    int status = 0;
    while (!status && (piece = persist_brought_first(drain->brought))) {
        const uint64_t position = journal_end(drain->journal);
        memcpy(drain->record + PERSIST_BLOCK_HEADER, piece->bytes, piece->length);
        status = append_at(drain, PERSIST_PIECE, piece->address, piece->length, error);
        drain->stats.brought += !status;
        if (!status)
            persist_brought_written(drain->brought, position);
    }
    return status;
}

/* One of another memory node's pool. False: nobody has brought it. */
static bool piece_brought(struct persist_drain *drain, gaddr address, uint64_t hash, int *status,
                          struct error *error)
{
    enum persist_brought_state state = persist_brought_named(drain->brought, address, hash);
    if (state == PERSIST_BROUGHT_WAITS) {
        *status = brought_copy(drain, error);
        state = *status ? state : persist_brought_named(drain->brought, address, hash);
    }
    return !*status && state == PERSIST_BROUGHT_WRITTEN;
}

/* One of this process's pools, if the journal does not have it. False: it cannot be read any more. */
static bool piece_here(struct persist_drain *drain, gaddr at, const struct format_piece *piece, int *status,
                       struct error *error)
{
    uint8_t *bytes = drain->record + PERSIST_BLOCK_HEADER;
    if (persist_pieces_have(drain->pieces, at, piece->hash))
        return true;
    if (!pool_read(drain, at, bytes, piece->length) ||
        format_record_hash(bytes, piece->length) != piece->hash)
        return false;
    if (!persist_pieces_add(drain->pieces, at, piece->hash))
        *status = error_set(error, BANYAN_ENOMEM, "no memory to remember a piece that is on the disk");
    if (!*status)
        *status = append_at(drain, PERSIST_BLOCK, at, piece->length, error);
    return !*status;
}

/* What is known of the pieces of the header in drain->header. */
struct pieces_met {
    bool stale, missing; /* one cannot be read any more; one is of another memory node, and was not brought */
};

static int pieces_each(struct persist_drain *drain, size_t key_length, uint32_t count, struct pieces_met *met,
                       struct error *error)
{
    int status = 0;
    for (uint32_t i = 0; i < count && !status && !met->stale; i++) {
        const struct format_piece piece = format_record_piece(drain->header, key_length, i);
        const gaddr at = format_piece_address(key_length, &piece);
        if (piece.block == GADDR_NULL)
            continue;
        if (is_here(drain, at))
            met->stale |= !piece_here(drain, at, &piece, &status, error) && !status;
        else
            met->missing |= !piece_brought(drain, at, piece.hash, &status, error) && !status;
    }
    return status;
}

/* Of a value in pieces first the pieces, then the header that names them. It is written as well where a piece
 * is missing: a life of this memory node before may have got that. */
static bool pieces_copy(struct persist_drain *drain, const struct format_key *key,
                        const struct format_reference *reference, int *status, struct error *error)
{
    const uint32_t bytes = format_record_read_bytes(key->length, reference, FORMAT_PART_HEADER);
    struct format_record record;
    struct pieces_met met = {.stale = false};
    if (bytes > FORMAT_RECORD_HEADER_MAX || !record_read(drain, reference->address, drain->header, bytes) ||
        !format_record_validate(reference, key->bytes, key->length, FORMAT_PART_HEADER, drain->header,
                                &record))
        return false;
    *status = pieces_each(drain, key->length, record.pieces, &met, error);
    if (*status || met.stale)
        return false;
    memcpy(drain->record + PERSIST_BLOCK_HEADER, drain->header, bytes);
    *status = append_record(drain, reference->address, bytes, error);
    if (met.missing && is_here(drain, reference->address))
        drain->stats.elsewhere++;
    else if (met.missing)
        drain->stats.uncarried++;
    return true;
}

static bool record_copy(struct persist_drain *drain, const struct format_key *key,
                        const struct format_reference *reference, int *status, struct error *error)
{
    const uint32_t bytes = format_record_block_bytes(key->length, reference);
    uint8_t *block = drain->record + PERSIST_BLOCK_HEADER;
    struct format_record record;
    if (reference->room)
        return pieces_copy(drain, key, reference, status, error);
    if (bytes > FORMAT_RECORD_BLOCK_MAX || !record_read(drain, reference->address, block, bytes) ||
        !format_record_validate(reference, key->bytes, key->length, FORMAT_PART_VALUE, block, &record))
        return false;
    *status = append_record(drain, reference->address, bytes, error);
    return true;
}

/* P3. */
static int entry_copy(struct persist_drain *drain, const struct format_log_entry *entry, struct error *error)
{
    struct format_value value;
    int status = 0;
    drain->stats.entries++;
    if (entry->kind != FORMAT_LOG_PUT || !format_value_decode(entry->value, entry->value_length, &value) ||
        !value.record)
        return 0;
    if (record_copy(drain, &entry->key, &value.reference, &status, error) || status)
        return status;
    if (is_here(drain, value.reference.address))
        drain->stats.stale++;
    else
        drain->stats.uncarried++;
    return 0;
}

/* ---- names ---- */

/* What has changed of the catalogue since the last look. */
static int names_copy(struct persist_drain *drain, struct error *error)
{
    struct persist_index index;
    int status = 0;
    if (!drain->names)
        return 0;
    persist_names_begin(drain->names);
    while (!status && persist_names_next(drain->names, &index)) {
        status = append(drain, PERSIST_INDEX, persist_index_encode(&index, drain->record), error);
        if (!status)
            persist_names_written(drain->names);
    }
    return status;
}

/* P9. Of an index that was created behind this pass's look the name stands before the frame. */
static int names_check(struct persist_drain *drain, const struct format_log_view *view, struct error *error)
{
    struct format_log_entry entry;
    uint32_t at = 0;
    bool known = true;
    while (drain->names && known && format_log_frame_next(view, &at, &entry))
        known = persist_names_have(drain->names, entry.index);
    return known ? 0 : names_copy(drain, error);
}

/* ---- frames ---- */

static int frame_copy(struct persist_drain *drain, const struct format_log_segment *use,
                      const struct segment *segment, const struct format_log_view *view, struct error *error)
{
    const struct persist_frame frame = {.process = use->owner,
                                        .node = segment->node,
                                        .tells = use->tells,
                                        .alone = view->alone,
                                        .twice = view->other.nonce,
                                        .view = *view};
    struct format_log_entry entry;
    uint32_t at = 0;
    int status = names_check(drain, view, error);
    while (!status && format_log_frame_next(view, &at, &entry))
        status = entry_copy(drain, &entry, error);
    if (status || !view->count) /* a frame without entries only covers room */
        return status;
    const enum persist_kind kind = persist_frame_encode(&frame, drain->record);
    memcpy(drain->record + PERSIST_FRAME_HEADER, view->entries, view->length);
    status = append(drain, kind, PERSIST_FRAME_HEADER + view->length, error);
    drain->stats.frames += !status;
    return status;
}

static bool is_done(const struct segment *segment, uint32_t position)
{
    const uint32_t block = position / FORMAT_LOG_BLOCK;
    return segment->done[block / 8] >> (block % 8) & 1u;
}

static void mark_done(struct segment *segment, uint32_t position, uint32_t bytes)
{
    for (uint32_t at = position; at < position + bytes; at += FORMAT_LOG_BLOCK) {
        const uint32_t block = at / FORMAT_LOG_BLOCK;
        segment->done[block / 8] |= (uint8_t)(1u << (block % 8));
    }
    while (segment->low < segment->size && is_done(segment, segment->low))
        segment->low += FORMAT_LOG_BLOCK;
}

/* The image's bytes from `have` up to what a frame at the position may take. */
static void image_extend(const struct persist_drain *drain, const struct segment *segment, uint32_t position,
                         uint32_t *have)
{
    uint32_t to =
        segment->size - position > FORMAT_LOG_FRAME_MAX ? position + FORMAT_LOG_FRAME_MAX : segment->size;
    if (to <= *have)
        return;
    bool there = pool_read(drain, segment->address + *have, drain->image + *have, to - *have);
    assert(there && "the memory node has handed it out");
    (void)there;
    *have = to;
}

/* Without memory it is forgotten, and copied once more. */
static void copied_add(struct copied_list *list, const struct copied *frame)
{
    if (list->count == list->capacity) {
        const uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct copied *grown = realloc(list->items, capacity * sizeof *grown);
        if (!grown)
            return;
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = *frame;
}

/* Whether this very frame stands in the list; *next: where to look on. */
static bool copied_find(const struct copied_list *list, const struct copied *frame, uint32_t *next)
{
    while (*next < list->count && list->items[*next].position < frame->position)
        ++*next;
    if (*next == list->count)
        return false;
    const struct copied *found = &list->items[*next];
    return found->position == frame->position && found->bytes == frame->bytes && found->first == frame->first;
}

/* P16. Where the carrier's parts stand. */
static int carrier_note(struct persist_drain *drain, const struct format_log_segment *use,
                        const struct segment *segment, const struct format_log_view *view,
                        struct error *error)
{
    struct format_log_part part;
    uint32_t at = 0;
    while (format_log_part_next(view, &at, &part))
        if (!persist_carried_add(drain->carried, use->owner.instance, view->first, &part,
                                 segment->address + (uint64_t)(part.bytes - drain->image)))
            return error_set(error, BANYAN_ENOMEM, "no memory for the records that a log carries");
    return 0;
}

/* Whether all records that the frame's entries name, and that lie on other memory nodes, are carried, as far
 * as this pass has seen. */
static bool frame_ready(const struct persist_drain *drain, const struct format_log_view *view)
{
    struct format_log_entry entry;
    struct format_value value;
    uint32_t at = 0;
    bool ready = true;
    while (ready && format_log_frame_next(view, &at, &entry))
        if (entry.kind == FORMAT_LOG_PUT && entry.value_length == FORMAT_REFERENCE_BYTES &&
            format_value_decode(entry.value, entry.value_length, &value) && value.record &&
            !is_here(drain, value.reference.address))
            ready = carried_read(drain, value.reference.address, NULL,
                                 format_record_block_bytes(entry.key.length, &value.reference));
    return ready;
}

/* The frame came between the reading of its carriers' place and its own: what was written before it is there
 * by now, right before it. */
static int carriers_look(struct persist_drain *drain, const struct format_log_segment *use,
                         const struct segment *segment, uint32_t position, uint64_t first,
                         struct error *error)
{
    const uint32_t back = FORMAT_LOG_CARRIED_MAX < position - FORMAT_LOG_BLOCK
                              ? position - FORMAT_LOG_CARRIED_MAX
                              : FORMAT_LOG_BLOCK;
    int status = 0;
    if (!pool_read(drain, segment->address + back, drain->image + back, position - back))
        return 0;
    for (uint32_t at = back; !status && at < position;) {
        struct format_log_view view;
        const enum format_log_found found = format_log_frame_find(use, drain->image, at, &view);
        if (found == FORMAT_LOG_WHOLE && view.parts && view.first == first)
            status = carrier_note(drain, use, segment, &view, error);
        at += found == FORMAT_LOG_NOTHING ? FORMAT_LOG_BLOCK : view.bytes;
    }
    return status;
}

/* A frame that is copied for the first time. */
static int frame_take(struct persist_drain *drain, const struct format_log_segment *use,
                      const struct segment *segment, uint32_t position, const struct format_log_view *view,
                      struct error *error)
{
    int status = 0;
    drain->instance = use->owner.instance;
    drain->first = view->first;
    if (!frame_ready(drain, view))
        status = carriers_look(drain, use, segment, position, view->first, error);
    return status ? status : frame_copy(drain, use, segment, view, error);
}

/* P1. The next pass looks again at each place where no whole frame stands yet; and at each frame of which no
 * frame says that it is complete: its process may not know whether it came, and write another one to its
 * place. What a pass learns of that counts for the next one, which reads the place behind it. */
static int frames_copy(struct persist_drain *drain, const struct format_log_segment *use,
                       struct segment *segment, struct error *error)
{
    uint32_t reach = segment->low; /* the last frame's end */
    uint32_t have = reach;         /* of the image */
    uint32_t final = segment->final, next = 0, at = segment->low;
    struct copied_list before = segment->copied, now = drain->spare;
    int status = 0;
    now.count = 0;
    while (!status && at < segment->size && at - reach < FORMAT_LOG_SPAN) {
        struct format_log_view view;
        uint32_t step = FORMAT_LOG_BLOCK;
        if (is_done(segment, at)) {
            reach = at + step;
            at += step;
            have = have < at ? at : have;
            continue;
        }
        image_extend(drain, segment, at, &have);
        enum format_log_found found = format_log_frame_find(use, drain->image, at, &view);
        if (found != FORMAT_LOG_NOTHING) {
            step = view.bytes;
            reach = at + step;
            final = view.committed > final ? view.committed : final;
        }
        if (found == FORMAT_LOG_WHOLE) {
            const struct copied frame = {.position = at, .bytes = step, .first = view.first};
            if (view.parts)
                status = carrier_note(drain, use, segment, &view, error);
            else if (!copied_find(&before, &frame, &next))
                status = frame_take(drain, use, segment, at, &view, error);
            if (!status && at + step <= segment->final)
                mark_done(segment, at, step);
            else if (!status && !view.parts)
                copied_add(&now, &frame);
            if (view.count && view.last > segment->sequence) /* also where a part alone was copied */
                segment->sequence = view.last;
        }
        at += status ? 0 : step;
    }
    for (; next < before.count; next++)
        if (before.items[next].position >= at)
            copied_add(&now, &before.items[next]);
    segment->final = final;
    segment->copied = now;
    drain->spare = before;
    return status;
}

static int segment_copy(struct persist_drain *drain, struct segment *segment, struct error *error)
{
    uint8_t header[FORMAT_LOG_BLOCK];
    struct format_log_segment use;
    if (!pool_read(drain, segment->address, header, sizeof header) ||
        format_log_segment_decode(header, &use) || use.size > segment->size)
        return 0; /* it was not begun yet, or is being begun */
    if (use.nonce != segment->nonce) {
        memset(segment->done, 0, segment->size / FORMAT_LOG_BLOCK / 8);
        segment->nonce = use.nonce;
        segment->low = FORMAT_LOG_BLOCK;
        segment->instance = use.owner.instance;
        segment->sequence = 0;
        segment->final = segment->copied.count = 0;
    }
    return frames_copy(drain, &use, segment, error);
}

/* ---- which segments there are ---- */

static struct segment *segment_find(struct persist_drain *drain, const struct memory_log_segment *handed)
{
    for (uint32_t i = 0; i < drain->segment_count; i++)
        if (drain->segments[i].address == handed->address && drain->segments[i].serial == handed->number)
            return &drain->segments[i];
    return NULL;
}

static struct segment *segment_add(struct persist_drain *drain, uint16_t node,
                                   const struct memory_log_segment *handed)
{
    if (drain->segment_count == drain->segment_capacity) {
        const uint32_t capacity = drain->segment_capacity ? 2 * drain->segment_capacity : 8;
        struct segment *grown = realloc(drain->segments, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        drain->segments = grown;
        drain->segment_capacity = capacity;
    }
    uint8_t *done = calloc(handed->bytes / FORMAT_LOG_BLOCK / 8, 1);
    if (!done)
        return NULL;
    struct segment *segment = &drain->segments[drain->segment_count++];
    *segment = (struct segment){.node = node,
                                .address = handed->address,
                                .serial = handed->number,
                                .size = (uint32_t)handed->bytes,
                                .done = done};
    return segment;
}

static int call(const struct fabric_target *target, const struct memory_log_request *request, void *reply,
                size_t capacity, struct error *error)
{
    size_t length;
    int status = target->call(target->owner, ASKER, request, sizeof *request, reply, capacity, &length);
    if (status && status != BANYAN_ENOTFOUND)
        return error_set(error, status, "the memory node does not tell its logs' segments");
    return status;
}

static int process_copy(struct persist_drain *drain, uint16_t node,
                        const struct memory_board_process *process, struct error *error)
{
    struct memory_log_request request = {.kind = MEMORY_LOG_LIST, .instance = ASKER, .process = *process};
    struct memory_log_segments page;
    int status;
    do {
        status = call(drain->targets[node], &request, &page, sizeof page, error);
        for (uint32_t i = 0; i < page.count && !status; i++) {
            const struct memory_log_segment *handed = &page.segments[i];
            struct segment *segment = segment_find(drain, handed);
            if (!segment)
                segment = segment_add(drain, node, handed);
            if (!segment)
                return error_set(error, BANYAN_ENOMEM, "no memory to keep a log's segment");
            segment->listed = true;
            request.after = handed->number;
            status = segment_copy(drain, segment, error);
        }
    } while (!status && page.count == MEMORY_LOG_PAGE);
    return status == BANYAN_ENOTFOUND ? 0 : status; /* its log was given back since */
}

static int node_copy(struct persist_drain *drain, uint16_t node, struct error *error)
{
    struct memory_log_request request = {.kind = MEMORY_LOG_PROCESSES, .instance = ASKER};
    struct memory_log_processes page;
    int status;
    do {
        status = call(drain->targets[node], &request, &page, sizeof page, error);
        for (uint32_t i = 0; i < page.count && !status; i++) {
            status = process_copy(drain, node, &page.processes[i].process, error);
            request.after = page.processes[i].serial;
        }
    } while (!status && page.count == MEMORY_LOG_PAGE);
    return status;
}

/* Forgets the segments that were given back. */
static void segments_sweep(struct persist_drain *drain)
{
    for (uint32_t i = drain->segment_count; i-- > 0;) {
        struct segment *segment = &drain->segments[i];
        if (segment->listed) {
            segment->listed = false;
            continue;
        }
        free(segment->done);
        free(segment->copied.items);
        *segment = drain->segments[--drain->segment_count];
    }
}

int persist_drain_pass(struct persist_drain *drain, struct error *error)
{
    const uint64_t began = task_now();
    int status = names_copy(drain, error);
    if (!status)
        status = brought_copy(drain, error);
    persist_carried_clear(drain->carried);
    for (uint32_t i = 0; i < drain->segment_count; i++)
        drain->segments[i].listed = false;
    for (uint16_t node = 0; node < drain->count && !status; node++)
        if (drain->targets[node])
            status = node_copy(drain, node, error);
    if (!status)
        segments_sweep(drain);
    drain->stats.passes += !status;
    drain->looked = status ? drain->looked : began;
    return status;
}

/* ---- lifetime ---- */

int persist_drain_create(struct persist_drain **drain, const struct fabric_target *const *targets,
                         uint16_t count, struct journal *journal, struct error *error)
{
    assert(count && count <= NODES_MAX);
    struct persist_drain *made = calloc(1, sizeof *made);
    /* Memory node 1 has a copy of the catalogue. */
    const struct fabric_target *named = targets[0] ? targets[0] : count > 1 ? targets[1] : NULL;
    *drain = made;
    if (made) {
        made->count = count;
        made->journal = journal;
        memcpy(made->targets, targets, count * sizeof *targets);
        made->pieces = persist_pieces_create();
        made->carried = persist_carried_create();
        made->brought = persist_brought_create(made->targets, count);
        made->names = named ? persist_names_create(named) : NULL;
        made->image = malloc(MEMORY_LOG_SEGMENT_MOST);
        made->record = malloc(JOURNAL_LENGTH_MAX);
        made->header = malloc(FORMAT_RECORD_HEADER_MAX);
    }
    if (made && made->pieces && made->carried && made->brought && (made->names || !named) && made->image &&
        made->record && made->header)
        return 0;
    persist_drain_destroy(made);
    *drain = NULL;
    return error_set(error, BANYAN_ENOMEM, "no memory to keep logs on a disk");
}

void persist_drain_destroy(struct persist_drain *drain)
{
    if (!drain)
        return;
    for (uint32_t i = 0; i < drain->segment_count; i++) {
        free(drain->segments[i].done);
        free(drain->segments[i].copied.items);
    }
    free(drain->spare.items);
    free(drain->segments);
    persist_pieces_destroy(drain->pieces);
    persist_carried_destroy(drain->carried);
    persist_brought_destroy(drain->brought);
    persist_names_destroy(drain->names);
    free(drain->image);
    free(drain->record);
    free(drain->header);
    free(drain);
}

uint64_t persist_drain_forget(struct persist_drain *drain, uint64_t position)
{
    persist_pieces_clear(drain->pieces);
    if (drain->names)
        persist_names_forget(drain->names);
    return persist_brought_forget(drain->brought, position, drain->looked);
}

struct persist_brought *persist_drain_brought(struct persist_drain *drain)
{
    return drain->brought;
}

int persist_drain_marks(const struct persist_drain *drain, struct persist_drain_mark **marks, uint32_t *count,
                        struct error *error)
{
    *count = 0;
    *marks = drain->segment_count ? calloc(drain->segment_count, sizeof **marks) : NULL;
    if (drain->segment_count && !*marks)
        return error_set(error, BANYAN_ENOMEM, "no memory to tell what of the logs is copied");
    for (uint32_t i = 0; i < drain->segment_count; i++) {
        const struct segment *segment = &drain->segments[i];
        uint32_t at = 0;
        if (!segment->nonce) /* it was not begun yet */
            continue;
        while (at < *count && (*marks)[at].instance != segment->instance)
            at++;
        if (at == *count)
            (*marks)[(*count)++] = (struct persist_drain_mark){.instance = segment->instance};
        if (segment->sequence > (*marks)[at].sequence)
            (*marks)[at].sequence = segment->sequence;
    }
    return 0;
}

void persist_drain_stats(const struct persist_drain *drain, struct persist_drain_stats *stats)
{
    *stats = drain->stats;
}
