/* ownership.c - see ownership.h. */
#include "bench/ownership.h"

#include <stdlib.h>
#include "tree/rights.h"

void bench_part_init(struct workload_part *part, const struct bench_config *config,
                     const struct workload_source *source, uint32_t number)
{
    const uint32_t owners = config->compute_nodes - config->move;
    *part = (struct workload_part){.begin = source->slots, .end = source->slots};
    if (number < owners)
        workload_part_init(part, source, number, owners);
}

int bench_borders_make(struct tree_session *session, struct tree *tree, const struct bench_config *config,
                       const struct workload_source *source)
{
    int status = 0;
    for (uint32_t part = 1; part < config->compute_nodes && !status; part++) {
        uint8_t key[8];
        workload_key(workload_part_begin(source, part, config->compute_nodes), key, sizeof key);
        status = tree_border_make(session, tree, key, sizeof key);
    }
    return status;
}

int bench_rights_take(struct tree_session *session, struct tree *tree, const struct bench_config *config,
                      const struct workload_source *source, const struct fabric_process *owners,
                      uint32_t self, uint64_t incarnation)
{
    const uint32_t count = config->compute_nodes;
    struct tree_rights_row *rows = calloc(count, sizeof *rows);
    uint8_t(*keys)[8] = calloc(count, sizeof *keys);
    int status = rows && keys ? 0 : BANYAN_ENOMEM;
    for (uint32_t part = 0; part < count && !status; part++) {
        workload_key(workload_part_begin(source, part, count), keys[part], sizeof keys[part]);
        rows[part] = (struct tree_rights_row){.lower = keys[part],
                                              .lower_length = part ? sizeof keys[part] : 0,
                                              .right = part == self ? TREE_OWNED : TREE_OTHERS,
                                              .epoch = 1,
                                              .logged = config->log_copies};
        if (part != self)
            rows[part].owner = owners[part];
    }
    if (!status)
        status = tree_rights_adopt(session, tree, 1, incarnation, rows, count);
    free(rows);
    free(keys);
    return status;
}
