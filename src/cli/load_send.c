/* load_send.c - see load_send.h. */
#include "cli/load_send.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/task.h"

#define SECOND   UINT64_C(1000000000)
#define PAUSE_NS (SECOND / 10)

static int lost(struct load_sender *sender, struct error *error)
{
    char words[120];
    client_words(words, sizeof words, sender->connection->errstr);
    return error_set(error, BANYAN_ENET, "the connection to the server was lost: %s", words);
}

/* At the window's end. The command's bytes are the window's from now on. */
static int put(struct load_sender *sender, const struct load_command *command, struct error *error)
{
    assert(sender->count < LOAD_WINDOW);
    if (redisAppendFormattedCommand(sender->connection, command->bytes, command->length) != REDIS_OK) {
        redisFreeCommand(command->bytes);
        return lost(sender, error);
    }
    sender->window[(sender->first + sender->count++) % LOAD_WINDOW] = *command;
    sender->bytes += command->length;
    return 0;
}

/* The server refused the command, or does not know whether it took effect. */
static int refused(struct load_sender *sender, const struct load_command *command, const char *words,
                   struct error *error)
{
    char text[140];
    const bool passing = !strncmp(words, "CLUSTERDOWN", 11) || !strncmp(words, "UNKNOWN", 7);
    if (command->again && passing && task_now() < sender->answered_at + LOAD_WAIT_SECONDS * SECOND) {
        sender->retries++;
        task_sleep(PAUSE_NS / (sender->count + 1)); /* a window full of refusals pauses once or twice */
        return put(sender, command, error);
    }
    client_words(text, sizeof text, words);
    redisFreeCommand(command->bytes);
    return error_set(error, BANYAN_ENET, "byte %" PRIu64 " of the file: the server refused: %s",
                     command->position, text);
}

/* One answer. */
static int hear(struct load_sender *sender, struct error *error)
{
    void *answer = NULL;
    assert(sender->count > 0);
    if (redisGetReply(sender->connection, &answer) != REDIS_OK)
        return lost(sender, error);
    const struct load_command command = sender->window[sender->first];
    const redisReply *reply = answer;
    int status = 0;
    sender->first = (sender->first + 1) % LOAD_WINDOW;
    sender->count--;
    sender->bytes -= command.length;
    if (reply->type == REDIS_REPLY_ERROR) {
        status = refused(sender, &command, reply->str, error);
    } else {
        sender->done += reply->type != REDIS_REPLY_NIL;
        sender->kept += reply->type == REDIS_REPLY_NIL;
        sender->answered_at = task_now();
        redisFreeCommand(command.bytes);
    }
    freeReplyObject(answer);
    return status;
}

int load_send(struct load_sender *sender, int count, const char *const *arguments, const size_t *lengths,
              uint64_t position, bool again, struct error *error)
{
    struct load_command command = {.position = position, .again = again};
    int status = 0;
    if (!sender->connection) {
        sender->done++;
        return 0;
    }
    if (sender->count == LOAD_WINDOW || sender->bytes > LOAD_WINDOW_BYTES)
        while (!status && (sender->count > LOAD_WINDOW / 2 || sender->bytes > LOAD_WINDOW_BYTES / 2))
            status = hear(sender, error);
    if (status)
        return status;
    /* hiredis does not change what it is given. */
    const long long length =
        redisFormatCommandArgv(&command.bytes, count, (const char **)(uintptr_t)arguments, lengths);
    if (length < 0)
        return error_set(error, BANYAN_ENOMEM, "no memory for a command");
    command.length = (size_t)length;
    return put(sender, &command, error);
}

int load_finish(struct load_sender *sender, struct error *error)
{
    int status = 0;
    while (sender->count > 0 && !status)
        status = hear(sender, error);
    return status;
}

void load_sender_close(struct load_sender *sender)
{
    for (; sender->count > 0; sender->count--, sender->first = (sender->first + 1) % LOAD_WINDOW)
        redisFreeCommand(sender->window[sender->first].bytes);
    if (sender->connection)
        redisFree(sender->connection);
    sender->connection = NULL;
}
