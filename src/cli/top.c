/*
 * top.c - `banyan top`: a live view of running servers, from their INFO. On a terminal it redraws until q is
 * pressed; in a pipe, or with --once, it prints one view and ends.
 */
#include "cli/top.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include "base/task.h"
#include "cli/command.h"

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct top_settings, field), low, high, choices, unit, help                     \
    }
static const struct option_entry table[] = {
    ROW("interval", OPTION_U32, interval_ms, 100, 600000, NULL, "ms", "Between two views"),
    ROW("once", OPTION_BOOL, once, 0, 0, NULL, NULL, "Print one view and end"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "One view for programs"),
    ROW("password-file", OPTION_TEXT, password_file, 0, 0, NULL, "FILE", "First line: the servers' password"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "top",
    .table = table,
    .arguments = "[ADDRESS...]",
    .arguments_max = TOP_SERVERS_MAX,
    .documentation =
        "Watch servers ('banyan serve', 'banyan compute'): operations, latency, round trips, memory.\v"
        "Without an address: 127.0.0.1:6379. Rates are of the time since the view before; in the first view, "
        "of an interval.\n\n"
        "Examples:\n"
        "  banyan top\n"
        "  banyan top 127.0.0.1:6379 127.0.0.1:6380 --interval 500\n"
        "  banyan top --once --json unix:/tmp/banyan.sock\n\n"
        "Exit status: 0; 1 when a server does not answer in --once; 2 when a setting makes no sense.",
};

static void poll_all(struct top *top)
{
    for (unsigned i = 0; i < top->count; i++)
        top_server_poll(top, &top->servers[i]);
}

/* Waits for a key or the interval's end; true when it was q, or the input has ended. */
static bool asked_to_quit(uint32_t interval_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = 0;
    if (poll(&input, 1, (int)interval_ms) <= 0)
        return false;
    return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 3;
}

static void watch(struct top *top)
{
    struct termios old, raw;
    bool terminal = !tcgetattr(STDIN_FILENO, &old);
    if (terminal) {
        raw = old;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* a screen of our own, without cursor */
    do {
        poll_all(top);
        fputs("\033[H\033[2J", stdout);
        top_print(top);
        fputs("\nq quits\n", stdout);
        fflush(stdout);
    } while (!asked_to_quit(top->settings.interval_ms));
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &old);
}

static int view_once(struct top *top)
{
    int status = COMMAND_OK;
    poll_all(top);
    task_sleep((uint64_t)top->settings.interval_ms * 1000000);
    poll_all(top);
    if (top->settings.json)
        status = top_print_json(top);
    else
        top_print(top);
    for (unsigned i = 0; i < top->count; i++)
        if (!top->servers[i].alive)
            status = COMMAND_FAILED;
    return status;
}

static int prepare(struct top *top, const struct settings_arguments *arguments, struct error *error)
{
    static const char *const usual = "127.0.0.1:6379";
    size_t length = 0;
    int status = 0;
    top->count = arguments->count ? arguments->count : 1;
    for (unsigned i = 0; !status && i < top->count; i++) {
        top->servers[i].name = arguments->count ? arguments->values[i] : usual;
        status = net_address_parse(&top->servers[i].address, top->servers[i].name, 6379, error);
    }
    if (!status && top->settings.password_file)
        status = net_secret_read(top->settings.password_file, top->password, &length, error);
    return status;
}

int command_top(int argc, char **argv)
{
    char *values[TOP_SERVERS_MAX];
    struct settings_arguments arguments = {.values = values};
    struct error error = {0};
    struct top *top = calloc(1, sizeof *top);
    if (!top)
        return COMMAND_FAILED;
    int result = COMMAND_OK;
    top->settings.interval_ms = 1000;
    int status = settings_read(&command, &top->settings, argc, argv, &arguments, &error);
    if (!status)
        status = prepare(top, &arguments, &error);
    if (!status && (top->settings.once || top->settings.json || !isatty(STDOUT_FILENO)))
        result = view_once(top);
    else if (!status)
        watch(top);
    for (unsigned i = 0; i < top->count; i++)
        if (top->servers[i].connection)
            redisFree(top->servers[i].connection);
    explicit_bzero(top->password, sizeof top->password);
    option_free(table, &top->settings);
    free(top);
    return status ? cluster_failed("top", &error) : result;
}
