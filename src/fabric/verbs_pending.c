#include "fabric/verbs_queue.h"
/* stands in for files that are being written */
int verbs_device_open(struct verbs_device **d, const struct verbs_options *o, const struct sockaddr *l,
                      struct error *e)
{
    return error_set(e, BANYAN_ENOTSUP, "not yet");
}
void verbs_device_close(struct verbs_device *d) {}
uint32_t verbs_mtu_bytes(enum ibv_mtu mtu)
{
    return 128u << mtu;
}
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
