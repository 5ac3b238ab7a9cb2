/*
 * list.c - LISTs: every command is run as soon as all its bytes are there (G5), in order, directly on the
 * pool; the reply grows in the output as they are run.
 *
 * On the connection's I/O thread. A list with a bad address is answered with the results of the commands
 * before it and BANYAN_EADDRESS; the rest of its message is skipped. A message that contradicts itself (a
 * payload beyond its end) breaks the connection. Order (G1, G4) as in fabric/local_run.h: a store that may
 * not be visible to everyone yet is fenced before the next READ or atomic is answered, and before the reply
 * is ready.
 */
#include <assert.h>

#include "fabric/local_run.h"
#include "memory/heat.h"
#include "memoryd/session.h"

enum session_result memoryd_session_list_begin(struct memoryd_session *session,
                                               const struct wire_header *head)
{
    struct memoryd_buffer *out = &session->out;
    assert(session->open && session->list.left == 0);
    session->list = (struct session_list){.left = head->length, .count = head->count, .id = head->id};
    session->worked = true;
    memoryd_count(&session->counts->lists, 1);
    /* The reply's header is filled in when the list has ended. */
    if (!memoryd_buffer_room(out, sizeof(struct wire_header)))
        return memoryd_session_broken(session, "no memory for a reply");
    out->end += sizeof(struct wire_header);
    return SESSION_MORE;
}

static void list_end(struct memoryd_session *session)
{
    struct session_list *list = &session->list;
    struct memoryd_buffer *out = &session->out;
    if (list->pending)
        fabric_target_fence();
    struct wire_header head = {.length = (uint32_t)(out->end - out->ready - sizeof head),
                               .kind = WIRE_REPLY,
                               .count = list->run,
                               .status = list->status,
                               .id = list->id};
    memcpy(out->bytes + out->ready, &head, sizeof head);
    out->ready = out->end;
    memoryd_count(&session->counts->commands, list->run);
    *list = (struct session_list){0};
}

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* `out` has room for the result. */
static void run_command(struct memoryd_session *session, uint8_t *where, struct fabric_command *command,
                        const uint8_t *payload)
{
    struct session_list *list = &session->list;
    struct memoryd_buffer *out = &session->out;
    if (command->operation == FABRIC_WRITE) {
        command->write.data = payload;
        local_write(where, command, session->staged);
        list->pending = true;
        memoryd_count(&session->counts->bytes_written, command->length);
        return;
    }
    if (list->pending)
        fabric_target_fence();
    list->pending = false;
    if (command->operation == FABRIC_READ) {
        command->read.buffer = out->bytes + out->end;
        fabric_target_read(where, command);
        out->end += command->length;
        memoryd_count(&session->counts->bytes_read, command->length);
        return;
    }
    uint64_t old;
    if (command->operation == FABRIC_CAS) {
        command->cas.compare = word_at(payload);
        command->cas.swap = word_at(payload + 8);
        command->cas.mask = word_at(payload + 16);
        fabric_target_cas(where, command);
        old = command->cas.old;
    } else {
        command->faa.add = word_at(payload);
        fabric_target_faa(where, command);
        old = command->faa.old;
    }
    list->pending = !LOCAL_ATOMICS_ARE_FENCES;
    memcpy(out->bytes + out->end, &old, sizeof old);
    out->end += sizeof old;
}

/* Where the command works; NULL: it is refused. */
static uint8_t *admit(struct memoryd_session *session, const struct wire_command *wire,
                      struct fabric_command *command)
{
    struct session_list *list = &session->list;
    *command = (struct fabric_command){.operation = (enum fabric_operation)wire->operation,
                                       .length = wire->length,
                                       .address = wire->address};
    if (wire_command_payload(wire) == UINT32_MAX || gaddr_node(wire->address) != session->number)
        return NULL;
    if (wire->operation == FABRIC_READ || wire->operation == FABRIC_WRITE) {
        if (wire->length > FABRIC_LIST_BYTES_MAX - list->volume)
            return NULL;
    }
    return fabric_target_locate(session->daemon->target, command);
}

/* Runs the next command. *taken: all its bytes were there. */
static enum session_result command_step(struct memoryd_session *session, bool *taken)
{
    struct session_list *list = &session->list;
    struct memoryd_buffer *in = &session->in;
    size_t held = memoryd_buffer_held(in);
    struct wire_command wire;
    struct fabric_command command;
    *taken = false;
    if (list->left < sizeof wire)
        return memoryd_session_broken(session, "a list is shorter than its commands");
    if (held < sizeof wire) {
        session->need = sizeof wire;
        return SESSION_MORE;
    }
    memcpy(&wire, in->bytes + in->start, sizeof wire);
    /* The address is checked before the payload is waited for. */
    uint8_t *where = admit(session, &wire, &command);
    if (where == NULL) {
        list->status = BANYAN_EADDRESS;
        return SESSION_MORE;
    }
    size_t whole = sizeof wire + wire_command_payload(&wire);
    if (list->left < whole)
        return memoryd_session_broken(session, "a command's payload ends behind its list");
    if (held < whole) {
        session->need = whole;
        return SESSION_MORE;
    }
    if (!memoryd_buffer_room(&session->out, wire_command_result(&wire)))
        return memoryd_session_broken(session, "no memory for a reply");
    if (wire.operation == FABRIC_READ || wire.operation == FABRIC_WRITE)
        list->volume += wire.length;
    run_command(session, where, &command, in->bytes + in->start + sizeof wire);
    if (++session->unnoted >= MEMORY_HEAT_EVERY) {
        session->unnoted = 0;
        memory_heat_note(session->daemon->node, wire.address);
    }
    list->run++;
    list->left -= (uint32_t)whole;
    in->start += whole;
    *taken = true;
    return SESSION_MORE;
}

/* Skips what is there of a list that was refused. */
static void skip(struct memoryd_session *session)
{
    size_t held = memoryd_buffer_held(&session->in);
    size_t some = held < session->list.left ? held : session->list.left;
    session->in.start += some;
    session->list.left -= (uint32_t)some;
    session->need = session->list.left < SESSION_INPUT_LISTS ? session->list.left : SESSION_INPUT_LISTS;
}

enum session_result memoryd_session_list_step(struct memoryd_session *session)
{
    struct session_list *list = &session->list;
    bool taken = true;
    while (taken && !list->status && list->run < list->count) {
        enum session_result result = command_step(session, &taken);
        if (result != SESSION_MORE)
            return result;
    }
    if (list->status)
        skip(session);
    else if (list->run == list->count && list->left > 0)
        return memoryd_session_broken(session, "a list is longer than its commands");
    if (list->left == 0)
        list_end(session);
    return SESSION_MORE;
}
