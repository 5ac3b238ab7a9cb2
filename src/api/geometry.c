/*
 * geometry.c - a program's geometry turned into the tree's, and back. Every value comes from outside and is
 * checked here. No round trips.
 */
#include "api/index.h"

#include <assert.h>

static_assert(BANYAN_SUBTREE_DEFAULT == FORMAT_SUBTREE_DEFAULT, "it is passed on");
static_assert((int)BANYAN_LEAF_HASHED == FORMAT_LEAF_HASHED &&
                  (int)BANYAN_LEAF_UNSORTED == FORMAT_LEAF_UNSORTED &&
                  (int)BANYAN_LEAF_DENSE == FORMAT_LEAF_DENSE,
              "it is passed on");

#define LONG_KEY_BYTES    64u
#define LONG_KEY_INTERNAL 4096u

/* Records: the store's own geometry, with what else the program asks for. */
static int geometry_of_records(struct banyan_session *session, const struct banyan_geometry *given,
                               struct format_geometry *geometry)
{
    if (!given->key_variable || !given->value_variable)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: value_bytes above %u needs variable keys and variable values",
                         BANYAN_SLOT_VALUE_MAX);
    store_geometry(geometry);
    if (given->leaf_bytes)
        geometry->leaf_bytes = given->leaf_bytes;
    if (given->internal_bytes)
        geometry->internal_bytes = given->internal_bytes;
    if (given->inline_key_bytes)
        geometry->inline_key_bytes = (uint8_t)given->inline_key_bytes;
    if (given->key_bytes)
        geometry->key_bytes = (uint8_t)given->key_bytes;
    geometry->subtree_levels = (uint8_t)given->subtree_levels;
    geometry->leaf_kind = (uint8_t)given->leaf_kind;
    return format_geometry_complete(geometry, fabric_capabilities(session->banyan->fabric)->atomic_write,
                                    &session->error);
}

/* The largest power of two that is not larger. */
static uint32_t largest_power(uint32_t number)
{
    uint32_t power = 1;
    while (power <= number / 2)
        power *= 2;
    return power;
}

int api_geometry_convert(struct banyan_session *session, const struct banyan_geometry *given,
                         struct format_geometry *geometry)
{
    struct banyan_geometry g = {.key_variable = 1, .value_bytes = BANYAN_VALUE_MAX, .value_variable = 1};
    if (given) {
        int status = api_struct_in(&g, sizeof g, given, "geometry", &session->error);
        if (status)
            return status;
    }
    if (g.key_bytes > FORMAT_KEY_MAX || g.inline_key_bytes > FORMAT_KEY_MAX)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: key_bytes %u, inline_key_bytes %u: one is above %u", g.key_bytes,
                         g.inline_key_bytes, FORMAT_KEY_MAX);
    if (g.value_bytes > BANYAN_VALUE_MAX)
        return error_set(&session->error, BANYAN_EINVAL, "geometry: value_bytes is %u, at most %u",
                         g.value_bytes, BANYAN_VALUE_MAX);
    if (g.key_variable > 1 || g.value_variable > 1)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: key_variable and value_variable are 0 or 1");
    if (g.subtree_levels > FORMAT_SUBTREE_LEVELS_MAX && g.subtree_levels != FORMAT_SUBTREE_DEFAULT)
        return error_set(&session->error, BANYAN_EINVAL, "geometry: subtree_levels is %u, at most %u",
                         g.subtree_levels, FORMAT_SUBTREE_LEVELS_MAX);
    if (g.leaf_kind > FORMAT_LEAF_KIND_LAST || g.reserved)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: leaf_kind is %u, reserved %u: at most %u, and 0", g.leaf_kind, g.reserved,
                         FORMAT_LEAF_KIND_LAST);
    if (g.value_bytes > FORMAT_VALUE_MAX)
        return geometry_of_records(session, &g, geometry);
    /* Inner nodes hold whole keys: the tree's own default has no room for enough long ones. */
    uint32_t atomic_write = fabric_capabilities(session->banyan->fabric)->atomic_write;
    if (g.internal_bytes == 0 && g.key_bytes > LONG_KEY_BYTES)
        g.internal_bytes = largest_power(atomic_write < LONG_KEY_INTERNAL ? atomic_write : LONG_KEY_INTERNAL);
    *geometry = (struct format_geometry){
        .leaf_bytes = g.leaf_bytes,
        .internal_bytes = g.internal_bytes,
        .key_kind = g.key_variable ? FORMAT_KEY_VARIABLE : FORMAT_KEY_FIXED,
        .key_bytes = (uint8_t)g.key_bytes,
        .inline_key_bytes = (uint8_t)g.inline_key_bytes,
        .value_bytes = (uint8_t)g.value_bytes,
        .value_variable = g.value_variable != 0,
        .subtree_levels = (uint8_t)g.subtree_levels,
        .leaf_kind = (uint8_t)g.leaf_kind,
    };
    return format_geometry_complete(geometry, atomic_write, &session->error);
}

int banyan_index_geometry(const struct banyan_index *index, struct banyan_geometry *geometry)
{
    if (!index || !geometry)
        return BANYAN_EINVAL;
    const struct format_geometry *from = tree_geometry(index->tree);
    struct banyan_geometry to = {
        .key_bytes = from->key_bytes,
        .key_variable = from->key_kind == FORMAT_KEY_VARIABLE,
        .value_bytes = index->store ? BANYAN_VALUE_MAX : from->value_bytes,
        .value_variable = from->value_variable,
        .leaf_bytes = from->leaf_bytes,
        .internal_bytes = from->internal_bytes,
        .inline_key_bytes = from->inline_key_bytes,
        .subtree_levels = from->subtree_levels,
        .leaf_kind = from->leaf_kind,
    };
    return api_struct_out(geometry, &to, sizeof to);
}
