#include "fabric/verbs_queue.h"
/* stands in for files that are being written */
static void plain_features(struct ibv_context *context, struct verbs_features *features)
{
    *features = (struct verbs_features){0};
}
const struct verbs_provider verbs_plain = {.name = "pending", .features = plain_features};
int verbs_queue_create(struct verbs_queue **q, const struct verbs_device *d, struct error *e)
{
    return BANYAN_ENOTSUP;
}
const struct wire_card *verbs_queue_end(const struct verbs_queue *q)
{
    return NULL;
}
int verbs_queue_connect(struct verbs_queue *q, const struct wire_card *t, const struct verbs_memory *m,
                        struct error *e)
{
    return BANYAN_ENOTSUP;
}
void verbs_queue_destroy(struct verbs_queue *q, verbs_done_function *d, void *o) {}
int verbs_queue_post(struct verbs_queue *q, struct fabric_list *l)
{
    return BANYAN_ENOTSUP;
}
uint32_t verbs_queue_poll(struct verbs_queue *q, verbs_done_function *d, void *o)
{
    return 0;
}
uint32_t verbs_queue_under_way(const struct verbs_queue *q)
{
    return 0;
}
const char *verbs_queue_broken(const struct verbs_queue *q)
{
    return "";
}
int verbs_queue_descriptor(const struct verbs_queue *q)
{
    return -1;
}
void verbs_queue_arm(struct verbs_queue *q) {}
void verbs_queue_awake(struct verbs_queue *q) {}
