/* talk.c - see talk.h. */
#include "cluster/talk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

const char *keep(const char *text)
{
    static char kept[128][512];
    static unsigned next;
    char *place = kept[next++ % 128];
    snprintf(place, sizeof kept[0], "%s", text);
    return place;
}

redisContext *client_of(const struct process *process, unsigned address)
{
    struct net_address where = process_address(process, address);
    return client_connect(&where);
}

const char *ask(redisContext *client, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = redisvCommand(client, format, list);
    va_end(list);
    if (!reply)
        return text_of("(no reply: %s)", client->errstr);
    const char *text = "(array)";
    if (reply->type == REDIS_REPLY_NIL)
        text = "(nil)";
    else if (reply->type == REDIS_REPLY_INTEGER)
        text = text_of("%lld", reply->integer);
    else if (reply->type != REDIS_REPLY_ARRAY)
        text = text_of("%s%.900s", reply->type == REDIS_REPLY_ERROR ? "-" : "", reply->str);
    freeReplyObject(reply);
    return text;
}

char *info_text(redisContext *client, const char *section)
{
    redisReply *reply = redisCommand(client, "INFO %s", section);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    char *text = strdup(reply->str);
    assert_non_null(text);
    freeReplyObject(reply);
    return text;
}

uint64_t info_figure(redisContext *client, const char *section, const char *name)
{
    char *text = info_text(client, section);
    const char *at = strstr(text, text_of("\n%s:", name));
    if (!at)
        fail_msg("INFO %s has no %s: %s", section, name, text);
    uint64_t value = strtoull(at + strlen(name) + 2, NULL, 10);
    free(text);
    return value;
}

const char *config_text(redisContext *client, const char *name)
{
    redisReply *reply = redisCommand(client, "CONFIG GET %s", name);
    assert_non_null(reply);
    assert_int_equal(reply->elements, 2);
    const char *text = text_of("%s", reply->element[1]->str);
    freeReplyObject(reply);
    return text;
}

void assert_refused(struct scene *scene, const char *const *arguments, const char *part, const char *other)
{
    static struct process_result result;
    const char *limited[32] = {"-s", "KILL", "20", getenv("BANYAN_PROGRAM")}; /* it may serve instead */
    for (unsigned i = 0; i < 27 && arguments[i]; i++)
        limited[4 + i] = arguments[i];
    process_run(scene, "timeout", limited, &result);
    if ((result.code != 1 && result.code != 2) || !strstr(result.error, part) || !strstr(result.error, other))
        fail_msg("ended with %d, and not with '%s' and '%s': %s%s", result.code, part, other, result.output,
                 result.error);
}

void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %s", part, text);
}

void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("\"%s\" is in: %s", part, text);
}

const char *address_text(const struct process *process, unsigned number)
{
    char text[NET_TEXT_MAX];
    struct net_address address = process_address(process, number);
    return keep(net_address_format(&address, text));
}
