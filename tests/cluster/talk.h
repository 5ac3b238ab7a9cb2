/*
 * talk.h - how tests talk to the processes of a scene (process.h), and judge what they hear. Failures are
 * cmocka's.
 */
#ifndef TESTS_CLUSTER_TALK_H
#define TESTS_CLUSTER_TALK_H

#include "cluster/process.h"

/* A text that stays, unlike the rotating ones: one of 128. */
const char *keep(const char *text);
/* The process's number-th address, as text that stays. */
const char *address_text(const struct process *process, unsigned number);
/* A connection to the number-th address that the process announced. */
redisContext *client_of(const struct process *process, unsigned address);
/* The reply as text: "(nil)", "7", "-ERR ...". */
const char *ask(redisContext *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number of INFO's section. */
uint64_t info_figure(redisContext *client, const char *section, const char *name);
/* INFO's section, from malloc. */
char *info_text(redisContext *client, const char *section);
/* What CONFIG GET says of a setting. */
const char *config_text(redisContext *client, const char *name);
/* The program ends by itself, with 2 where a setting cannot be, else with 1, and says both parts. */
void assert_refused(struct scene *scene, const char *const *arguments, const char *part, const char *other);
void assert_contains(const char *text, const char *part);
void assert_lacks(const char *text, const char *part);

#endif
