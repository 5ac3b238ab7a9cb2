/*
 * plan_fields.h - the tables that a plan's fields stand in, for plan.c, plan_fields.c and plan_text.c. No
 * other file includes it: swarm_plan_set (plan.h) finds a field by name.
 */
#ifndef SWARM_PLAN_FIELDS_H
#define SWARM_PLAN_FIELDS_H

#include "swarm/plan.h"

/* A table, and where in the plan the struct lies that it is about. No name stands in two of them. */
struct swarm_plan_part {
    const struct option_entry *table;
    size_t offset;
};
#define SWARM_PLAN_PARTS 4u
extern const struct swarm_plan_part swarm_plan_parts[SWARM_PLAN_PARTS];
/* By enum format_key_kind. */
extern const char *const swarm_plan_key_kinds[];

#endif
