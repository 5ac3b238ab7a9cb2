/*
 * fuzz_bring.c - what owners bring to a memory node's disk (persist/brought.h): calls of any bytes, and such
 * that make sense, of few places, so that pieces are met again; in between the pieces that wait are written,
 * entries name pieces, and journals' beginnings are released.
 *
 * Oracle: a call that makes no sense is refused, and takes nothing; the reply has no bits beyond its pieces;
 * a piece that is said to be there is known to the disk's thread too; pieces that wait have the hash that
 * they are named by; a journal stays from no later position on than the one that is asked for.
 */
#include "base/task.h"
#include "format/record.h"
#include "fuzz/fuzz.h"
#include "memory/request.h"
#include "persist/brought.h"

#define POOL_BYTES 8192u
#define STEPS      200u

struct rig {
    uint8_t pool[POOL_BYTES];
    struct fabric_target target;
    const struct fabric_target *targets[3];
    struct persist_brought *brought;
    struct memory_bring_request request;
    uint64_t position; /* of the journal's end */
};

static struct memory_bring_piece piece_make(struct fuzz_input *input, struct rig *rig)
{
    const uint8_t shape = fuzz_byte(input);
    const uint32_t offset = 64u * (shape % 8u), length = 1 + shape % 32u * 8u;
    struct memory_bring_piece piece = {.address = gaddr_make(shape & 64 ? 2 : 0, 1024 + offset),
                                       .hash = format_record_hash(rig->pool + offset, length),
                                       .length = length};
    if (shape & 128)
        piece.staged = gaddr_make(1, offset);
    return piece;
}

static void call(struct rig *rig, size_t length, bool sense)
{
    struct memory_bring_reply reply;
    size_t told = 0;
    const struct persist_brought_piece *before = persist_brought_first(rig->brought);
    int status = persist_brought_call(rig->brought, &rig->request, length, &reply, &told);
    fuzz_must(!sense || !status, "a call that makes sense is refused: %d", status);
    if (status) {
        fuzz_must(before || !persist_brought_first(rig->brought),
                  "a call that is refused has brought something");
        return;
    }
    fuzz_must(told == sizeof reply, "a reply of %zu bytes", told);
    for (uint32_t i = 0; i < MEMORY_BRING_MAX; i++) {
        const bool missing = reply.missing[i / 64] >> (i % 64) & 1;
        fuzz_must(i < rig->request.count || !missing, "piece %u of %u is missing", (unsigned)i,
                  (unsigned)rig->request.count);
        fuzz_must(!sense || !missing || i >= rig->request.count || !rig->request.pieces[i].staged,
                  "what was staged is missing");
        if (i < rig->request.count && !missing)
            fuzz_must(persist_brought_named(rig->brought, rig->request.pieces[i].address,
                                            rig->request.pieces[i].hash) != PERSIST_BROUGHT_NOT,
                      "what is said to be there is not");
    }
}

static void call_any(struct fuzz_input *input, struct rig *rig)
{
    const size_t most = sizeof rig->request;
    size_t length = fuzz_u16(input);
    length = length > most ? most : length;
    memset(&rig->request, 0, most);
    fuzz_take(input, (uint8_t *)&rig->request, length < input->length ? length : input->length);
    call(rig, length, false);
}

static void call_good(struct fuzz_input *input, struct rig *rig)
{
    rig->request.count = 1 + fuzz_byte(input) % 100u;
    for (uint32_t i = 0; i < rig->request.count; i++)
        rig->request.pieces[i] = piece_make(input, rig);
    call(rig,
         offsetof(struct memory_bring_request, pieces) + rig->request.count * sizeof rig->request.pieces[0],
         true);
}

static void write_all(struct rig *rig)
{
    const struct persist_brought_piece *piece;
    while ((piece = persist_brought_first(rig->brought))) {
        fuzz_must(format_record_hash(piece->bytes, piece->length) == piece->hash, "other bytes wait");
        persist_brought_written(rig->brought, rig->position += 8);
    }
}

static void step(struct fuzz_input *input, struct rig *rig)
{
    const uint8_t what = fuzz_byte(input);
    if (what % 8 < 3) {
        call_good(input, rig);
    } else if (what % 8 < 4) {
        call_any(input, rig);
    } else if (what % 8 < 5) {
        rig->pool[fuzz_u16(input) % POOL_BYTES] = fuzz_byte(input);
    } else if (what % 8 < 6) {
        const struct memory_bring_piece piece = piece_make(input, rig);
        (void)persist_brought_named(rig->brought, piece.address, piece.hash);
    } else if (what % 8 < 7) {
        const uint64_t from = persist_brought_forget(rig->brought, rig->position += 8, task_now());
        fuzz_must(from <= rig->position, "a journal begins behind its end");
    } else {
        write_all(rig);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    struct rig *rig = calloc(1, sizeof *rig);
    if (!rig)
        abort();
    rig->target.pool = rig->pool;
    rig->target.pool_bytes = POOL_BYTES;
    rig->targets[1] = &rig->target;
    rig->brought = persist_brought_create(rig->targets, 3);
    if (!rig->brought)
        abort();
    for (unsigned i = 0; i < STEPS && input.length; i++)
        step(&input, rig);
    write_all(rig);
    persist_brought_destroy(rig->brought);
    free(rig);
    return 0;
}
