/* disk_simulated.c - see disk_simulated.h. */
#include "disk/disk_simulated.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/task.h"
#include "disk/disk_ops.h"

#define SECTOR DISK_SECTOR_BYTES
#define LINE   DISK_LINE_BYTES
#define WORD   8u

struct bytes {
    uint8_t *start; /* owned */
    uint64_t length, capacity;
};

/* A version of a sector, or of the file's length, that is not synced. */
struct version {
    struct version *next;
    uint64_t sector; /* LENGTH: it is of the length */
    uint64_t length;
    uint64_t serial;
    uint8_t bytes[SECTOR];
};
#define LENGTH UINT64_MAX

/* A version of a line of the cache that no fence has brought to the medium. */
struct line {
    struct line *next;
    uint64_t offset;
    bool flushed; /* the next fence does */
    uint8_t bytes[LINE];
};

/* A file without its name; lives while a name, a change of one, or an open file refers to it. */
struct inode {
    uint32_t references;
    struct bytes now, platter; /* the platter's may be longer than its length: what lies behind is stale */
    uint64_t platter_length;
    struct version *first, **last;
    struct line *lines, **last_line;
};

struct entry {
    struct entry *next;
    char name[DISK_NAME_MAX + 1];
    struct inode *inode; /* referred to */
};

enum change_kind { CHANGE_CREATE, CHANGE_RENAME, CHANGE_REMOVE };
struct change {
    struct change *next;
    enum change_kind kind;
    char from[DISK_NAME_MAX + 1], to[DISK_NAME_MAX + 1];
    struct inode *inode; /* referred to */
    uint64_t serial;
};

struct fault {
    uint32_t after, times;
};

struct simulated {
    struct disk disk;
    struct disk_simulated_options options;
    struct random random;
    struct entry *now, *platter; /* names */
    struct change *first, **last;
    struct bytes stale; /* the bytes of the file that was removed last */
    struct fault faults[DISK_FAULTS];
    uint64_t serial, syncs;
    disk_simulated_watch_function *watch;
    void *context;
};

struct simulated_file {
    struct disk_file file;
    struct inode *inode; /* referred to */
};

static struct simulated *simulated_of(const struct disk *disk)
{
    return (struct simulated *)(uintptr_t)disk;
}

static struct inode *inode_of(struct disk_file *file)
{
    return ((struct simulated_file *)file)->inode;
}

static int no_memory(struct error *error)
{
    return error_set(error, BANYAN_ENOMEM, "no memory for a simulated disk");
}

static void spend(uint64_t nanoseconds)
{
    if (nanoseconds)
        task_sleep(nanoseconds);
}

static void told(struct simulated *disk)
{
    if (disk->watch)
        disk->watch(disk->context, &disk->disk);
}

/* ---- bytes, inodes, names ---- */

static bool bytes_reserve(struct bytes *bytes, uint64_t capacity)
{
    if (capacity <= bytes->capacity)
        return true;
    uint8_t *grown = realloc(bytes->start, capacity * 2);
    if (!grown)
        return false;
    bytes->start = grown;
    bytes->capacity = capacity * 2;
    return true;
}

/* Zeros where it grows. */
static bool bytes_resize(struct bytes *bytes, uint64_t length)
{
    if (!bytes_reserve(bytes, length))
        return false;
    if (length > bytes->length)
        memset(bytes->start + bytes->length, 0, length - bytes->length);
    bytes->length = length;
    return true;
}

static bool bytes_copy(struct bytes *to, const struct bytes *from)
{
    if (!bytes_resize(to, from->length))
        return false;
    if (from->length)
        memcpy(to->start, from->start, from->length);
    return true;
}

static bool bytes_put(struct bytes *to, uint64_t at, const uint8_t *bytes, uint64_t length)
{
    if (to->length < at + length && !bytes_resize(to, at + length))
        return false;
    memcpy(to->start + at, bytes, length);
    return true;
}

static void versions_free(struct inode *inode)
{
    while (inode->first) {
        struct version *gone = inode->first;
        inode->first = gone->next;
        free(gone);
    }
    inode->last = &inode->first;
}

static void lines_free(struct inode *inode)
{
    while (inode->lines) {
        struct line *gone = inode->lines;
        inode->lines = gone->next;
        free(gone);
    }
    inode->last_line = &inode->lines;
}

static struct inode *inode_make(void)
{
    struct inode *inode = calloc(1, sizeof *inode);
    if (inode) {
        inode->references = 1;
        inode->last = &inode->first;
        inode->last_line = &inode->lines;
    }
    return inode;
}

static struct inode *inode_refer(struct inode *inode)
{
    inode->references++;
    return inode;
}

static void inode_leave(struct inode *inode)
{
    if (--inode->references)
        return;
    versions_free(inode);
    lines_free(inode);
    free(inode->now.start);
    free(inode->platter.start);
    free(inode);
}

static struct entry **entry_find(struct entry **names, const char *name)
{
    while (*names && strcmp((*names)->name, name) != 0)
        names = &(*names)->next;
    return names;
}

static struct inode *names_get(struct entry *const *names, const char *name)
{
    struct entry *found = *entry_find((struct entry **)(uintptr_t)names, name);
    return found ? found->inode : NULL;
}

static void names_drop(struct entry **names, const char *name)
{
    struct entry **place = entry_find(names, name), *gone = *place;
    if (!gone)
        return;
    *place = gone->next;
    inode_leave(gone->inode);
    free(gone);
}

static bool names_put(struct entry **names, const char *name, struct inode *inode)
{
    struct entry **place = entry_find(names, name);
    inode_refer(inode);
    if (*place) {
        inode_leave((*place)->inode);
        (*place)->inode = inode;
        return true;
    }
    struct entry *made = calloc(1, sizeof *made);
    if (!made) {
        inode_leave(inode);
        return false;
    }
    memcpy(made->name, name, strlen(name) + 1);
    made->inode = inode;
    *place = made;
    return true;
}

static void names_free(struct entry **names)
{
    while (*names)
        names_drop(names, (*names)->name);
}

/* A change applies to whatever the names are by then: of earlier ones some may have been lost. */
static bool change_apply(struct entry **names, const struct change *change)
{
    if (change->kind != CHANGE_CREATE && names_get(names, change->from) == change->inode)
        names_drop(names, change->from);
    return change->kind == CHANGE_REMOVE || names_put(names, change->to, change->inode);
}

static void change_free(struct change *change)
{
    inode_leave(change->inode);
    free(change);
}

static int change_add(struct simulated *disk, enum change_kind kind, const char *from, const char *to,
                      struct inode *inode, struct error *error)
{
    struct change *change = calloc(1, sizeof *change);
    if (!change)
        return no_memory(error);
    change->kind = kind;
    memcpy(change->from, from, strlen(from) + 1);
    memcpy(change->to, to, strlen(to) + 1);
    change->inode = inode_refer(inode);
    change->serial = ++disk->serial;
    *disk->last = change;
    disk->last = &change->next;
    return change_apply(&disk->now, change) ? 0 : no_memory(error);
}

/* ---- faults ---- */

static bool fails(struct simulated *disk, enum disk_fault fault)
{
    struct fault *plan = &disk->faults[fault];
    if (plan->after) {
        plan->after--;
        return false;
    }
    if (!plan->times)
        return false;
    plan->times -= plan->times != DISK_FAULT_FOR_EVER;
    return true;
}

static int failed(const struct disk_file *file, const char *what, struct error *error)
{
    return error_set(error, BANYAN_EUNKNOWN, "file %s in %.80s cannot be %s: a simulated fault", file->name,
                     file->disk->path, what);
}

/* ---- writing ---- */

static struct version *version_add(struct simulated *disk, struct inode *inode, uint64_t sector)
{
    struct version *version = calloc(1, sizeof *version);
    if (!version)
        return NULL;
    version->sector = sector;
    version->length = inode->now.length;
    version->serial = ++disk->serial;
    *inode->last = version;
    inode->last = &version->next;
    return version;
}

/* The sectors of these bytes, as they are now, may reach the platter from now on. */
static bool touch(struct simulated *disk, struct inode *inode, uint64_t offset, uint64_t length)
{
    for (uint64_t at = offset / SECTOR * SECTOR; at < offset + length; at += SECTOR) {
        struct version *version = version_add(disk, inode, at / SECTOR);
        if (!version)
            return false;
        if (at < inode->now.length) {
            const uint64_t some = inode->now.length - at;
            memcpy(version->bytes, inode->now.start + at, some < SECTOR ? some : SECTOR);
        }
    }
    return true;
}

static bool resize(struct simulated *disk, struct inode *inode, uint64_t length)
{
    const uint64_t before = inode->now.length;
    if (!bytes_resize(&inode->now, length) || !version_add(disk, inode, LENGTH))
        return false;
    /* Bytes that were cut off read as zeros if the file grows again. */
    return length >= before || touch(disk, inode, length, before - length);
}

static bool enlarge(struct simulated *disk, struct inode *inode, uint64_t length)
{
    const uint64_t before = inode->now.length;
    return resize(disk, inode, length) && (length <= before || touch(disk, inode, before, length - before));
}

/* The platter's length when all is synced. If a sync has failed it is less than the length that is read,
 * until the bytes behind it are written again. */
static uint64_t length_pending(const struct inode *inode)
{
    uint64_t length = inode->platter_length;
    for (const struct version *version = inode->first; version; version = version->next)
        if (version->sector == LENGTH)
            length = version->length;
    return length;
}

static bool put(struct simulated *disk, struct inode *inode, uint64_t offset, const void *bytes,
                uint64_t length)
{
    const uint64_t before = inode->now.length, from = offset < before ? offset : before;
    if (!length)
        return true;
    if (offset + length > before && !resize(disk, inode, offset + length))
        return false;
    if (offset + length > length_pending(inode) && !version_add(disk, inode, LENGTH))
        return false;
    memcpy(inode->now.start + offset, bytes, length);
    return touch(disk, inode, from, offset + length - from); /* with the hole before it */
}

/* Syncs all that was written up to then, or (`some`) a part of it, and forgets the rest. */
static bool write_back(struct simulated *disk, struct inode *inode, uint64_t until, bool some)
{
    while (inode->first && inode->first->serial <= until) {
        struct version *version = inode->first;
        const uint64_t at = version->sector * SECTOR;
        if (!some || random_next(&disk->random) % 2) {
            if (version->sector == LENGTH) {
                inode->platter_length = version->length;
            } else {
                if (!bytes_put(&inode->platter, at, version->bytes, SECTOR))
                    return false;
            }
        }
        inode->first = version->next;
        free(version);
    }
    if (!inode->first)
        inode->last = &inode->first;
    return true;
}

/* A sync of a file that is, or was, mapped brings its lines too, as they are now. */
static bool lines_back(struct simulated *disk, struct inode *inode, bool some)
{
    bool good = true;
    for (const struct line *line = inode->lines; good && line; line = line->next) {
        const uint64_t left = inode->now.length > line->offset ? inode->now.length - line->offset : 0;
        if (left && (!some || random_next(&disk->random) % 2))
            good = bytes_put(&inode->platter, line->offset, inode->now.start + line->offset,
                             left < LINE ? left : LINE);
    }
    lines_free(inode);
    return good;
}

static int simulated_sync(struct disk_file *file, struct error *error)
{
    struct simulated *disk = simulated_of(file->disk);
    const uint64_t until = disk->serial;
    spend(disk->options.sync_ns);
    const bool fault = fails(disk, DISK_FAULT_SYNC);
    disk->syncs++;
    if (!write_back(disk, inode_of(file), until, fault) || !lines_back(disk, inode_of(file), fault))
        return no_memory(error);
    told(disk);
    return fault ? failed(file, "synced", error) : 0;
}

static uint64_t room_left(const struct simulated *disk)
{
    uint64_t used = 0;
    if (!disk->options.capacity)
        return UINT64_MAX;
    for (const struct entry *entry = disk->now; entry; entry = entry->next)
        used += entry->inode->now.length;
    return used < disk->options.capacity ? disk->options.capacity - used : 0;
}

/* How much of a write finds room, or comes before the fault. */
static uint64_t allowed(struct simulated *disk, const struct inode *inode, uint64_t offset, uint64_t length,
                        bool fault)
{
    const uint64_t room = room_left(disk), end = inode->now.length;
    if (fault)
        return random_below(&disk->random, length + 1);
    if (offset + length <= end || offset + length - end <= room)
        return length;
    return end + room > offset ? end + room - offset : 0;
}

static int simulated_write(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces,
                           unsigned count, bool sync, uint64_t *written, struct error *error)
{
    struct simulated *disk = simulated_of(file->disk);
    struct inode *inode = inode_of(file);
    uint64_t length = 0;
    spend(disk->options.call_ns);
    for (unsigned i = 0; i < count; i++)
        length += pieces[i].length;
    const bool fault = fails(disk, DISK_FAULT_WRITE);
    const uint64_t some = allowed(disk, inode, offset, length, fault);
    for (unsigned i = 0; i < count && *written < some; i++) {
        const uint64_t left = some - *written, piece = pieces[i].length < left ? pieces[i].length : left;
        if (!put(disk, inode, offset + *written, pieces[i].bytes, piece))
            return no_memory(error);
        *written += piece;
    }
    told(disk);
    if (fault)
        return failed(file, "written", error);
    if (some < length)
        return error_set(error, BANYAN_ENOSPC,
                         "file %s in %.80s cannot be written: the simulated disk is full", file->name,
                         file->disk->path);
    return sync ? simulated_sync(file, error) : 0;
}

static int simulated_truncate(struct disk_file *file, uint64_t bytes, struct error *error)
{
    struct simulated *disk = simulated_of(file->disk);
    spend(disk->options.call_ns);
    if (!enlarge(disk, inode_of(file), bytes))
        return no_memory(error);
    told(disk);
    return 0;
}

static int simulated_read(struct disk_file *file, uint64_t offset, void *buffer, size_t length, size_t *got,
                          struct error *error)
{
    const struct bytes *now = &inode_of(file)->now; /* the file's task waits here */
    spend(simulated_of(file->disk)->options.call_ns);
    if (offset >= now->length)
        return 0;
    *got = now->length - offset < length ? (size_t)(now->length - offset) : length;
    memcpy(buffer, now->start + offset, *got);
    return 0;
}

static int simulated_size(struct disk_file *file, uint64_t *bytes, struct error *error)
{
    *bytes = inode_of(file)->now.length;
    return 0;
}

/* ---- persistent memory ---- */

static bool simulated_mappable(struct disk_file *file)
{
    return simulated_of(file->disk)->options.memory;
}

static int simulated_map(struct disk_file *file, uint64_t bytes, struct error *error)
{
    assert(inode_of(file)->now.length >= bytes);
    return 0;
}

static void simulated_unmap(struct disk_file *file)
{
    /* What is not fenced stays in the cache. */
}

static bool line_add(struct inode *inode, uint64_t offset)
{
    struct line *line = calloc(1, sizeof *line);
    if (!line)
        return false;
    const uint64_t left = inode->now.length - offset;
    line->offset = offset;
    memcpy(line->bytes, inode->now.start + offset, left < LINE ? left : LINE);
    *inode->last_line = line;
    inode->last_line = &line->next;
    return true;
}

static int simulated_store(struct disk_file *file, uint64_t offset, const void *bytes, size_t length,
                           struct error *error)
{
    struct inode *inode = inode_of(file);
    assert(offset + length <= inode->now.length);
    memcpy(inode->now.start + offset, bytes, length);
    for (uint64_t at = offset / LINE * LINE; at < offset + length; at += LINE)
        if (!line_add(inode, at))
            return no_memory(error);
    told(simulated_of(file->disk));
    return 0;
}

static void simulated_flush(struct disk_file *file, uint64_t offset)
{
    for (struct line *line = inode_of(file)->lines; line; line = line->next)
        line->flushed |= line->offset == offset;
}

static int simulated_fence(struct disk_file *file, struct error *error)
{
    struct simulated *disk = simulated_of(file->disk);
    struct inode *inode = inode_of(file);
    disk->syncs++;
    for (struct line **place = &inode->lines; *place;) {
        struct line *line = *place;
        if (!line->flushed) {
            place = &line->next;
            continue;
        }
        if (!bytes_put(&inode->platter, line->offset, line->bytes, LINE))
            return no_memory(error);
        *place = line->next;
        if (!*place)
            inode->last_line = place;
        free(line);
    }
    told(disk);
    return 0;
}

/* ---- names ---- */

static int not_found(const struct disk *disk, const char *name, struct error *error)
{
    return error_set(error, BANYAN_ENOTFOUND, "file %s in %.80s is not there", name, disk->path);
}

static int simulated_open(struct disk *base, const char *name, bool create, struct disk_file **opened,
                          struct error *error)
{
    struct simulated *disk = simulated_of(base);
    int status = 0;
    spend(disk->options.call_ns);
    struct inode *inode = names_get(&disk->now, name);
    if (inode && create)
        return error_set(error, BANYAN_EEXIST, "file %s in %.80s is there already", name, base->path);
    if (!inode && !create)
        return not_found(base, name, error);
    struct simulated_file *file = calloc(1, sizeof *file);
    inode = create ? inode_make() : inode_refer(inode);
    if (!file || !inode)
        status = no_memory(error);
    if (!status && create && disk->options.stale && !bytes_copy(&inode->platter, &disk->stale))
        status = no_memory(error);
    if (!status && create)
        status = change_add(disk, CHANGE_CREATE, "", name, inode, error);
    if (status) {
        if (inode)
            inode_leave(inode);
        free(file);
        return status;
    }
    disk_file_begin(&file->file, base, name);
    file->inode = inode;
    *opened = &file->file;
    if (create)
        told(disk);
    return 0;
}

static void simulated_close_file(struct disk_file *file)
{
    inode_leave(inode_of(file));
    free(file);
}

static int simulated_list(struct disk *base, disk_visit_function *visit, void *context, struct error *error)
{
    int status = 0;
    for (struct entry *entry = simulated_of(base)->now; !status && entry; entry = entry->next)
        status = visit(context, entry->name, entry->inode->now.length, error);
    return status;
}

static int simulated_measure(struct disk *base, const char *name, uint64_t *bytes, struct error *error)
{
    const struct inode *inode = names_get(&simulated_of(base)->now, name);
    if (!inode)
        return not_found(base, name, error);
    *bytes = inode->now.length;
    return 0;
}

static int change_names(struct disk *base, enum change_kind kind, const char *from, const char *to,
                        struct error *error)
{
    struct simulated *disk = simulated_of(base);
    spend(disk->options.call_ns);
    struct inode *inode = names_get(&disk->now, from);
    if (!inode)
        return not_found(base, from, error);
    if (kind == CHANGE_REMOVE && !bytes_copy(&disk->stale, &inode->now))
        return no_memory(error);
    int status = change_add(disk, kind, from, to, inode, error);
    told(disk);
    return status;
}

static int simulated_rename(struct disk *base, const char *from, const char *to, struct error *error)
{
    return change_names(base, CHANGE_RENAME, from, to, error);
}

static int simulated_remove(struct disk *base, const char *name, struct error *error)
{
    return change_names(base, CHANGE_REMOVE, name, "", error);
}

static void changes_free(struct simulated *disk)
{
    while (disk->first) {
        struct change *gone = disk->first;
        disk->first = gone->next;
        change_free(gone);
    }
    disk->last = &disk->first;
}

static int simulated_sync_names(struct disk *base, struct error *error)
{
    struct simulated *disk = simulated_of(base);
    const uint64_t until = disk->serial;
    spend(disk->options.sync_ns);
    disk->syncs++;
    if (fails(disk, DISK_FAULT_NAMES)) {
        told(disk);
        return error_set(error, BANYAN_EUNKNOWN, "directory %.80s cannot be synced: a simulated fault",
                         base->path);
    }
    while (disk->first && disk->first->serial <= until) {
        struct change *change = disk->first;
        if (!change_apply(&disk->platter, change))
            return no_memory(error);
        disk->first = change->next;
        change_free(change);
    }
    if (!disk->first)
        disk->last = &disk->first;
    told(disk);
    return 0;
}

static int simulated_free(struct disk *base, uint64_t *bytes, struct error *error)
{
    *bytes = room_left(simulated_of(base));
    return 0;
}

/* ---- the disk ---- */

static const char *simulated_kind(const struct disk *base)
{
    return "simulated";
}

static void simulated_close(struct disk *base)
{
    struct simulated *disk = simulated_of(base);
    changes_free(disk);
    names_free(&disk->now);
    names_free(&disk->platter);
    free(disk->stale.start);
    free(disk);
}

static const struct disk_ops simulated_ops = {.kind = simulated_kind,
                                              .close = simulated_close,
                                              .list = simulated_list,
                                              .open = simulated_open,
                                              .close_file = simulated_close_file,
                                              .read = simulated_read,
                                              .write = simulated_write,
                                              .sync = simulated_sync,
                                              .size = simulated_size,
                                              .truncate = simulated_truncate,
                                              .measure = simulated_measure,
                                              .rename = simulated_rename,
                                              .remove = simulated_remove,
                                              .sync_names = simulated_sync_names,
                                              .free = simulated_free,
                                              .mappable = simulated_mappable,
                                              .map = simulated_map,
                                              .unmap = simulated_unmap,
                                              .store = simulated_store,
                                              .flush = simulated_flush,
                                              .fence = simulated_fence};

struct disk *disk_simulated_create(const struct disk_simulated_options *options)
{
    struct simulated *disk = calloc(1, sizeof *disk);
    if (!disk)
        return NULL;
    disk->disk = (struct disk){.ops = &simulated_ops, .path = "the simulated disk", .limit = options->limit};
    disk->options = *options;
    disk->last = &disk->first;
    random_seed(&disk->random, options->seed);
    return &disk->disk;
}

void disk_simulated_fail(struct disk *disk, enum disk_fault fault, uint32_t after, uint32_t times)
{
    simulated_of(disk)->faults[fault] = (struct fault){after, times};
}

void disk_simulated_restart(struct disk *disk)
{
    struct simulated *simulated = simulated_of(disk);
    memset(simulated->faults, 0, sizeof simulated->faults);
    simulated->options.capacity = 0;
    disk->names_failed = 0;
}

void disk_simulated_capacity(struct disk *disk, uint64_t capacity)
{
    simulated_of(disk)->options.capacity = capacity;
}

void disk_simulated_latency(struct disk *disk, uint64_t sync_ns, uint64_t call_ns)
{
    simulated_of(disk)->options.sync_ns = sync_ns;
    simulated_of(disk)->options.call_ns = call_ns;
}

void disk_simulated_watch(struct disk *disk, disk_simulated_watch_function *watch, void *context)
{
    simulated_of(disk)->watch = watch;
    simulated_of(disk)->context = context;
}

uint64_t disk_simulated_syncs(const struct disk *disk)
{
    return simulated_of(disk)->syncs;
}

int disk_simulated_flip(struct disk *base, const char *name, uint64_t offset, uint8_t bits)
{
    struct inode *inode = names_get(&simulated_of(base)->now, name);
    if (!inode || offset >= inode->now.length)
        return BANYAN_ENOTFOUND;
    inode->now.start[offset] ^= bits;
    if (offset < inode->platter.length)
        inode->platter.start[offset] ^= bits;
    return 0;
}

/* ---- cuts ---- */

/* The choices that make a cut, one after the other, each below its bound. */
struct chooser {
    struct random *random; /* NULL: `number` has the choices, the least significant first */
    uint64_t number, states;
    bool all; /* the last of each instead: everything survives */
};

static uint32_t choose(struct chooser *chooser, uint32_t bound)
{
    if (__builtin_mul_overflow(chooser->states, bound, &chooser->states))
        chooser->states = UINT64_MAX;
    if (chooser->all)
        return bound - 1;
    if (chooser->random)
        return (uint32_t)random_below(chooser->random, bound);
    const uint32_t choice = (uint32_t)(chooser->number % bound);
    chooser->number /= bound;
    return choice;
}

/* Which version of the sector, or of the length, survives. NULL: the platter's. */
static const struct version *version_choose(struct chooser *chooser, const struct inode *inode,
                                            uint64_t sector)
{
    const struct version *chosen = NULL, *version;
    uint32_t count = 0;
    for (version = inode->first; version; version = version->next)
        count += version->sector == sector;
    uint32_t choice = choose(chooser, count + 1);
    for (version = inode->first; version && choice; version = version->next)
        if (version->sector == sector) {
            chosen = version;
            choice--;
        }
    return chosen;
}

static bool first_of_sector(const struct inode *inode, const struct version *version)
{
    for (const struct version *other = inode->first; other != version; other = other->next)
        if (other->sector == version->sector)
            return false;
    return true;
}

static bool first_of_line(const struct inode *inode, const struct line *line)
{
    for (const struct line *other = inode->lines; other != line; other = other->next)
        if (other->offset == line->offset)
            return false;
    return true;
}

/* Which version of a line, or of a word in it, survives; 0: the medium's. A draw takes whole lines as often
 * as torn ones, and all or nothing of them. */
static uint32_t line_choose(struct chooser *chooser, uint32_t count, uint32_t style)
{
    return style == 0 ? 0 : style == 1 ? count : choose(chooser, count + 1);
}

static bool line_cut(struct chooser *chooser, const struct inode *inode, uint64_t offset, struct inode *made)
{
    const uint32_t style = chooser->random ? (uint32_t)random_below(chooser->random, 3) : 2;
    const struct line *line;
    uint32_t count = 0;
    for (line = inode->lines; line; line = line->next)
        count += line->offset == offset;
    for (uint32_t word = 0; word < LINE; word += WORD) {
        uint32_t choice = line_choose(chooser, count, style);
        for (line = inode->lines; line && choice; line = line->next)
            if (line->offset == offset && !--choice &&
                !bytes_put(&made->now, offset + word, line->bytes + word, WORD))
                return false;
    }
    return true;
}

static bool lines_cut(struct chooser *chooser, const struct inode *inode, struct inode *made)
{
    bool good = true;
    for (const struct line *line = inode->lines; good && line; line = line->next)
        if (first_of_line(inode, line))
            good = line_cut(chooser, inode, line->offset, made);
    return good;
}

/* Makes the file that the next life reads. */
static bool inode_cut(struct chooser *chooser, const struct inode *inode, struct inode *made)
{
    if (!bytes_copy(&made->now, &inode->platter))
        return false;
    uint64_t length = inode->platter_length;
    for (const struct version *version = inode->first; version; version = version->next) {
        if (!first_of_sector(inode, version))
            continue;
        const struct version *chosen = version_choose(chooser, inode, version->sector);
        if (chosen && version->sector == LENGTH)
            length = chosen->length;
        if (!chosen || version->sector == LENGTH)
            continue;
        const uint64_t at = version->sector * SECTOR;
        if (!bytes_put(&made->now, at, chosen->bytes, SECTOR))
            return false;
    }
    made->platter_length = length;
    return lines_cut(chooser, inode, made) && bytes_resize(&made->now, length) &&
           bytes_copy(&made->platter, &made->now);
}

/* A file that may survive, and the one that is made of it. All choices are made, also for files whose names
 * are lost, so that each state has a number. */
struct survivor {
    struct survivor *next;
    const struct inode *inode;
    struct inode *made;
};

static struct survivor **survivor_find(struct survivor **all, const struct inode *inode)
{
    while (*all && (*all)->inode != inode)
        all = &(*all)->next;
    return all;
}

static bool survivor_add(struct chooser *chooser, struct survivor **all, const struct inode *inode)
{
    struct survivor **place = survivor_find(all, inode);
    if (*place)
        return true;
    *place = calloc(1, sizeof **place);
    if (!*place)
        return false;
    (*place)->inode = inode;
    (*place)->made = inode_make();
    return (*place)->made && inode_cut(chooser, inode, (*place)->made);
}

static bool survivors_make(struct chooser *chooser, const struct simulated *disk, struct survivor **all)
{
    bool good = true;
    for (const struct entry *entry = disk->platter; good && entry; entry = entry->next)
        good = survivor_add(chooser, all, entry->inode);
    for (const struct change *change = disk->first; good && change; change = change->next)
        good = survivor_add(chooser, all, change->inode);
    return good;
}

static void survivors_free(struct survivor **all)
{
    while (*all) {
        struct survivor *gone = *all;
        *all = gone->next;
        if (gone->made)
            inode_leave(gone->made);
        free(gone);
    }
}

static bool names_cut(struct chooser *chooser, const struct simulated *disk, struct survivor **all,
                      struct entry **names)
{
    bool good = true;
    for (const struct entry *entry = disk->platter; good && entry; entry = entry->next)
        good = names_put(names, entry->name, (*survivor_find(all, entry->inode))->made);
    for (const struct change *change = disk->first; good && change; change = change->next) {
        struct change again = *change;
        again.inode = (*survivor_find(all, change->inode))->made;
        if (choose(chooser, 2))
            good = change_apply(names, &again);
    }
    return good;
}

static bool disk_cut(struct chooser *chooser, const struct simulated *disk, struct simulated *made)
{
    struct survivor *all = NULL;
    bool good = survivors_make(chooser, disk, &all) && names_cut(chooser, disk, &all, &made->platter);
    for (const struct entry *entry = made->platter; good && entry; entry = entry->next)
        good = names_put(&made->now, entry->name, entry->inode);
    survivors_free(&all);
    return good && bytes_copy(&made->stale, &disk->stale);
}

uint64_t disk_simulated_states(struct disk *base)
{
    struct simulated *disk = simulated_of(base);
    struct chooser chooser = {.states = 1};
    struct survivor *all = NULL;
    struct entry *names = NULL;
    const bool good = survivors_make(&chooser, disk, &all) && names_cut(&chooser, disk, &all, &names);
    names_free(&names);
    survivors_free(&all);
    return good ? chooser.states : UINT64_MAX;
}

static struct disk *cut_by(struct simulated *disk, struct chooser *chooser)
{
    struct disk_simulated_options options = disk->options;
    options.seed = random_next(&disk->random);
    struct disk *made = disk_simulated_create(&options);
    if (!made)
        return NULL;
    if (disk_cut(chooser, disk, simulated_of(made)) && !disk_count(made, NULL))
        return made;
    disk_close(made);
    return NULL;
}

struct disk *disk_simulated_cut(struct disk *base)
{
    struct simulated *disk = simulated_of(base);
    struct chooser chooser = {.random = &disk->random, .states = 1};
    return cut_by(disk, &chooser);
}

struct disk *disk_simulated_killed(struct disk *base)
{
    struct chooser chooser = {.all = true, .states = 1};
    return cut_by(simulated_of(base), &chooser);
}

struct disk *disk_simulated_state(struct disk *base, uint64_t number)
{
    struct chooser chooser = {.number = number, .states = 1};
    return cut_by(simulated_of(base), &chooser);
}
