/*
 * fuzz_http.c - requests to the pages for people and Prometheus (server/http.c): whole conversations of any
 * bytes over a Unix socket with the real HTTP server, with a password and without.
 *
 * Oracle: every answer begins as an HTTP answer with an expected status; the page's secret text is sent only
 * where no password is set, or where the request contains the password; the server answers a good request
 * afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "server/http.h"

#define PASSWORD    "sesame oil"
#define SECRET_TEXT "the-numbers-that-only-some-may-see"
#define ANSWER_MAX  (1u << 20)

static void page_write(void *context, FILE *out)
{
    (void)context;
    fprintf(out, "%s\n", SECRET_TEXT);
}

struct server {
    struct http *http;
    struct net_address address;
    struct server_password password;
};

static char *answer;

static void server_start(struct server *server, const char *password)
{
    static const struct http_page pages[] = {{"/", "text/html", page_write, NULL},
                                             {"/metrics", "text/plain", page_write, NULL},
                                             {NULL, NULL, NULL, NULL}};
    struct error error = {0};
    if (password)
        password_set(&server->password, password, strlen(password));
    server->address.kind = NET_UNIX;
    snprintf(server->address.path, sizeof server->address.path, "/tmp/banyan-fuzz-http-%d-%d.sock",
             (int)getpid(), password != NULL);
    fuzz_must(!http_start(&server->http, &server->address, pages, &server->password, &error), "%s",
              error.text);
    /* The socket's file is removed at once, so that none is left behind. */
    int file = open(server->address.path, O_PATH | O_CLOEXEC);
    fuzz_must(file >= 0 && !unlink(server->address.path), "%s is not there", server->address.path);
    snprintf(server->address.path, sizeof server->address.path, "/proc/self/fd/%d", file);
}

/* Sends all bytes, and receives the answer until the server closes. */
static size_t converse(const struct server *server, const void *bytes, size_t length, bool good)
{
    static const char last[] = "\r\nx\r\n\r\n";
    /* Enough on a loaded machine: the server ends every conversation by itself. */
    static const struct timeval patience = {.tv_sec = 15};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t got = 0;
    ssize_t some;
    memcpy(name.sun_path, server->address.path, sizeof name.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_must(fd >= 0 && !connect(fd, (const struct sockaddr *)&name, sizeof name), "the server is gone");
    for (size_t at = 0; at < length; at += (size_t)some) {
        some = send(fd, (const char *)bytes + at, length - at, MSG_NOSIGNAL);
        if (some <= 0) /* the server has closed; its answer can still be read */
            break;
    }
    /* The library waits for the rest of an incomplete request even after the client has closed, so a bad end
     * is added. A good request needs none. */
    if (!good) {
        send(fd, last, sizeof last - 1, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    /* If the server closes with our bytes unread, the first recv reports the reset, and the next ones give
     * the answer. */
    for (bool reset = false; got < ANSWER_MAX;) {
        some = recv(fd, answer + got, ANSWER_MAX - got, 0);
        if (some <= 0 && (reset || some == 0 || errno != ECONNRESET))
            break;
        reset |= some < 0;
        got += some > 0 ? (size_t)some : 0;
    }
    close(fd);
    answer[got] = 0;
    return got;
}

static void judge_answer(size_t length)
{
    static const char *const statuses[] = {"200", "400", "401", "404", "405", "408", "411", "413",
                                           "414", "417", "431", "500", "501", "503", "505", "100"};
    bool known = false;
    if (!length)
        return; /* it may close without an answer */
    fuzz_must(length > 12 && !strncmp(answer, "HTTP/1.", 7), "an answer that begins with '%.12s'", answer);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        known |= !strncmp(answer + 9, statuses[i], 3);
    fuzz_must(known, "status %.3s", answer + 9);
}

/* Whether the bytes contain ":sesame oil" in base64, at any of its three alignments. */
static bool bears_password(const uint8_t *bytes, size_t length)
{
    for (size_t before = 0; before < 3; before++) {
        uint8_t plain[2 + sizeof PASSWORD + 1] = "..", text[40];
        memcpy(plain + before, ":" PASSWORD, sizeof PASSWORD);
        EVP_EncodeBlock(text, plain, (int)(before + sizeof PASSWORD));
        size_t begin = (8 * before + 5) / 6, end = 8 * (before + sizeof PASSWORD) / 6;
        if (memmem(bytes, length, text + begin, end - begin))
            return true;
    }
    return false;
}

/* Sends a good request, again and again: connections whose end the server has not seen may take all places
 * until they time out. */
static void converse_well(const struct server *server, const char *request)
{
    for (unsigned tries = 0; tries < 150; tries++) {
        if (converse(server, request, strlen(request), true))
            return;
        usleep(100000);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const char good[] = "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    static const char right[] = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                                "Authorization: Basic YTpzZXNhbWUgb2ls\r\n\r\n";
    static struct server free_one, closed;
    if (length > 40000)
        return 0;
    if (!answer) {
        answer = malloc(ANSWER_MAX + 1);
        server_start(&free_one, NULL);
        server_start(&closed, PASSWORD);
        fuzz_must(converse(&closed, right, sizeof right - 1, true) && strstr(answer, SECRET_TEXT),
                  "the right password is refused: %.200s", answer);
    }
    judge_answer(converse(&free_one, bytes, length, false));
    judge_answer(converse(&closed, bytes, length, false));
    fuzz_must(!strstr(answer, SECRET_TEXT) || bears_password(bytes, length),
              "told without the password: %.*s", (int)length, (const char *)bytes);
    if (bytes && length % 16 == 0) {
        fuzz_must((converse_well(&free_one, good), strstr(answer, SECRET_TEXT)),
                  "a good request is answered with %.200s", answer);
        fuzz_must((converse_well(&closed, good), !strncmp(answer + 9, "401", 3)),
                  "a request without password is answered with %.200s", answer);
    }
    return 0;
}
