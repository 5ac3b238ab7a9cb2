#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"

static int least_level = LOG_WARNING; /* a library is silent unless something is wrong */

void log_set_level(enum log_level level)
{
    atomic_store_relaxed(&least_level, (int)level); /* a setting, not a message */
}

void log_write(enum log_level level, const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    if ((int)level < atomic_load_relaxed(&least_level))
        return;
    int saved_errno = errno; /* the caller may look at errno after the message */
    char line[1024];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%03ldZ %s: ", now.tv_nsec / 1000000,
                             names[level]);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof line - used, format, arguments);
    va_end(arguments);
    used += more > 0 ? (size_t)more : 0;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    /* One line for each message, whatever a key or a name in it contains. */
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127)
            line[i] = '?';
    line[used++] = '\n';
    /* One write, so that lines of several threads do not mix. If it fails, there is nowhere to report it. */
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written;
    errno = saved_errno;
}
