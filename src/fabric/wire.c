/*
 * wire.c - the first validation of what arrives: whether a message or a command is possible at all. Both ends
 * call it for every message and command, on any thread; it costs a few comparisons.
 */
#include "fabric/wire.h"

#include <string.h>

/* Both ends must see the same bytes, whatever the compiler. */
_Static_assert(sizeof(struct wire_header) == 24, "wire_header has no holes");
_Static_assert(sizeof(struct wire_command) == 16, "wire_command has no holes");
_Static_assert(sizeof(struct wire_format) == 16, "wire_format has no holes");
_Static_assert(sizeof(struct wire_greeting) == 16 + NET_NONCE_BYTES, "wire_greeting has no holes");
_Static_assert(sizeof(struct wire_hello) ==
                   8 + NET_NONCE_BYTES + NET_PROOF_BYTES + 32 + WIRE_NAME_MAX + 1 + 8 + WIRE_PEER_MAX + 1,
               "wire_hello has no holes");
_Static_assert(sizeof(struct wire_welcome) == NET_PROOF_BYTES + 16 + 56, "wire_welcome has no holes");
_Static_assert(sizeof(struct wire_cluster_node) == 128, "wire_cluster_node has no holes");
_Static_assert(sizeof(struct wire_cluster_change) <= WIRE_SMALL_MAX, "a change of the list fits a request");
_Static_assert(sizeof(struct wire_persist_request) == 8, "wire_persist_request has no holes");
_Static_assert(sizeof(struct wire_nic) == 16 + 16 + 24, "wire_nic has no holes");
_Static_assert(sizeof(struct wire_process_request) == 24, "wire_process_request has no holes");
_Static_assert(sizeof(struct wire_process_list) <= WIRE_SMALL_MAX, "a list of processes fits a reply");
_Static_assert(offsetof(struct wire_staging, data) == 64, "staged bytes begin at a cache line");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs travel as they lie in memory");

#define CAS_PAYLOAD 24u
#define WORD        8u

bool wire_header_valid(const struct wire_header *header)
{
    if (header->kind < WIRE_GREETING || header->kind >= WIRE_KINDS || header->status > 0 ||
        header->status < ERROR_CODE_LOWEST)
        return false;
    if (header->kind == WIRE_LIST)
        return header->count - 1u < FABRIC_COMMANDS_MAX && header->length <= WIRE_LENGTH_MAX &&
               header->length >= header->count * sizeof(struct wire_command);
    if (header->kind == WIRE_REPLY)
        return header->count <= FABRIC_COMMANDS_MAX && header->length <= WIRE_LENGTH_MAX;
    return header->length <= WIRE_SMALL_MAX && header->count == 0;
}

static bool length_possible(uint32_t length)
{
    return length - 1 < FABRIC_LENGTH_MAX; /* 0 wraps */
}

uint32_t wire_command_payload(const struct wire_command *command)
{
    switch (command->operation) {
    case FABRIC_READ:
        return length_possible(command->length) ? 0 : UINT32_MAX;
    case FABRIC_WRITE:
        return length_possible(command->length) ? command->length : UINT32_MAX;
    case FABRIC_CAS:
        return CAS_PAYLOAD;
    case FABRIC_FAA:
        return WORD;
    default:
        return UINT32_MAX;
    }
}

uint32_t wire_command_result(const struct wire_command *command)
{
    switch (command->operation) {
    case FABRIC_READ:
        return length_possible(command->length) ? command->length : UINT32_MAX;
    case FABRIC_WRITE:
        return length_possible(command->length) ? 0 : UINT32_MAX;
    case FABRIC_CAS:
    case FABRIC_FAA:
        return WORD;
    default:
        return UINT32_MAX;
    }
}

bool wire_cluster_valid(const struct wire_cluster_list *list, size_t length)
{
    if (length < wire_cluster_bytes(0) || list->count - 1u >= WIRE_CLUSTER_NODES_MAX || /* 0 wraps */
        length != wire_cluster_bytes(list->count))
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct wire_cluster_node *node = &list->nodes[i];
        if (node->state < WIRE_CLUSTER_MEMBER || node->state >= WIRE_CLUSTER_STATES ||
            memchr(node->address, 0, sizeof node->address) == NULL || node->address[0] == 0)
            return false;
    }
    return list->cluster_id != 0 && list->nodes[0].state == WIRE_CLUSTER_MEMBER;
}
