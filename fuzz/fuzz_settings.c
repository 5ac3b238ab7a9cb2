/*
 * fuzz_settings.c - what people write: options and lists of options, configuration files, sizes and counts,
 * addresses, secret files, the benchmark's mixes, a cluster's URI.
 *
 * Oracle: what is refused has a message and changes nothing but the options named before it; what is accepted
 * is within its range, and prints as a text that is accepted again and gives the same; addresses and secrets
 * keep their limits.
 */
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan.h"
#include "bench/workloads.h"
#include "cli/cluster.h"
#include "cli/settings.h"
#include "fuzz/fuzz.h"
#include "sim/params.h"
#include "tree/tree.h"

/* One of each kind, with the limits that the programs' own tables have. */
struct sample {
    bool on;
    uint32_t small, bounded;
    uint64_t large, size;
    double number, share;
    int choice;
    char *text;
};
static const char *const choices[] = {"left", "right", "both", NULL};
static const struct option_entry sample_table[] = {
    {"on", OPTION_BOOL, offsetof(struct sample, on), 0, 0, NULL, NULL, ""},
    {"small", OPTION_U32, offsetof(struct sample, small), 0, 0, NULL, NULL, ""},
    {"bounded", OPTION_U32, offsetof(struct sample, bounded), 100, 60000, NULL, "ms", ""},
    {"large", OPTION_U64, offsetof(struct sample, large), 0, 0, NULL, NULL, ""},
    {"size", OPTION_U64, offsetof(struct sample, size), 4096, 0x1p46, NULL, "bytes", ""},
    {"number", OPTION_DOUBLE, offsetof(struct sample, number), 0, 0, NULL, NULL, ""},
    {"share", OPTION_DOUBLE, offsetof(struct sample, share), 0, 1, NULL, NULL, ""},
    {"choice", OPTION_CHOICE, offsetof(struct sample, choice), 0, 0, choices, NULL, ""},
    {"text", OPTION_TEXT, offsetof(struct sample, text), 0, 0, NULL, NULL, ""},
    {.kind = OPTION_END},
};

union subject {
    struct sample sample;
    struct tree_switches switches;
    struct sim_params params;
    struct sim_faults faults;
};

/* ---- options ---- */

static void judge_bounds(const struct option_entry *entry, const void *object)
{
    const void *field = (const char *)object + entry->offset;
    double value = entry->kind == OPTION_U32      ? *(const uint32_t *)field
                   : entry->kind == OPTION_U64    ? (double)*(const uint64_t *)field
                   : entry->kind == OPTION_DOUBLE ? *(const double *)field
                                                  : 0;
    fuzz_must(isfinite(value), "option %s is not finite", entry->name);
    if (entry->kind >= OPTION_U32 && entry->kind <= OPTION_DOUBLE &&
        (entry->minimum != 0 || entry->maximum != 0))
        fuzz_must(value >= entry->minimum && value <= entry->maximum, "option %s is %g", entry->name, value);
    if (entry->kind == OPTION_CHOICE)
        for (int i = 0; i <= *(const int *)field; i++)
            fuzz_must(entry->choices[i], "option %s: choice %d", entry->name, *(const int *)field);
}

static void judge_again(const struct option_entry *entry, const struct option_entry *table,
                        const void *object, size_t size)
{
    char text[5000];
    union subject other;
    struct error error = {0};
    memset(&other, 0, sizeof other);
    option_format(entry, object, text, sizeof text);
    int status = option_set(table, &other, entry->name, text, &error);
    fuzz_must(!status, "option %s prints as '%s', which is refused: %s", entry->name, text, error.text);
    size_t bytes = entry->kind == OPTION_BOOL                                  ? sizeof(bool)
                   : entry->kind == OPTION_U32 || entry->kind == OPTION_CHOICE ? 4
                                                                               : 8;
    if (entry->kind == OPTION_TEXT)
        fuzz_must(!strcmp(((const struct sample *)object)->text, other.sample.text), "a text is another");
    else
        fuzz_must(!memcmp((const char *)object + entry->offset, (const char *)&other + entry->offset, bytes),
                  "option %s prints as '%s', which is another value", entry->name, text);
    option_free(table, &other);
}

static void judge_options(struct fuzz_input *input)
{
    static const struct option_entry *const tables[] = {sample_table, tree_switches_table, sim_params_table,
                                                        sim_faults_table};
    const struct option_entry *table = tables[fuzz_byte(input) % 4], *entry = table;
    union subject object, before;
    struct error error = {0};
    memset(&object, 0, sizeof object);
    size_t count = 0;
    while (table[count].kind != OPTION_END)
        count++;
    entry += fuzz_below(input, count);
    char *value = fuzz_take_text(input), *list = fuzz_take_text(input);
    if (strlen(value) < 4000) {
        before = object;
        int status = option_set(table, &object, entry->name, value, &error);
        fuzz_must(!status || error.text[0], "refused without a message");
        if (status)
            fuzz_must(!memcmp(&object, &before, sizeof object), "refused, but changed");
        else
            judge_bounds(entry, &object), judge_again(entry, table, &object, sizeof object);
    }
    error_clear(&error);
    int status = option_set_list(table, &object, list, &error);
    fuzz_must(!status == !error.text[0], "list: status %d, message '%s'", status, error.text);
    for (const struct option_entry *at = table; at->kind != OPTION_END; at++)
        if (at->kind == OPTION_CHOICE)
            judge_bounds(at, &object);
    option_free(table, &object);
    free(value);
    free(list);
}

static void judge_numbers(struct fuzz_input *input)
{
    char *text = fuzz_take_text(input), back[32];
    for (unsigned count = 0; count < 2; count++) {
        int (*parse)(const char *, uint64_t *, struct error *) =
            count ? option_parse_count : option_parse_size;
        uint64_t value = 0, again = 0;
        struct error error = {0};
        int status = parse(text, &value, &error);
        fuzz_must(!status == !error.text[0], "number: status %d, message '%s'", status, error.text);
        if (status)
            continue;
        fuzz_must(text[0] >= '0' && text[0] <= '9', "'%s' is a number", text);
        snprintf(back, sizeof back, "%llu", (unsigned long long)value);
        fuzz_must(!parse(back, &again, &error) && again == value, "%s is read as another number", back);
        if (strspn(text, "0123456789") == strlen(text) && strlen(text) < 18)
            fuzz_must(value == strtoull(text, NULL, 10), "'%s' is read as %s", text, back);
    }
    free(text);
}

/* ---- addresses ---- */

static void judge_address(struct fuzz_input *input)
{
    uint16_t port = fuzz_byte(input) % 2 ? 7100 : 0;
    char *text = fuzz_take_text(input), printed[NET_TEXT_MAX];
    struct net_address address, again;
    struct error error = {0};
    int status = net_address_parse(&address, text, port, &error);
    fuzz_must(!status == !error.text[0], "address: status %d, message '%s'", status, error.text);
    if (!status) {
        net_address_format(&address, printed);
        fuzz_must(!net_address_parse(&again, printed, 0, &error), "'%s' prints as '%s', which is refused: %s",
                  text, printed, error.text);
        fuzz_must(again.kind == address.kind && !strcmp(again.path, address.path) &&
                      (address.kind == NET_UNIX ||
                       (again.port == address.port && !strcmp(again.host, address.host))),
                  "'%s' prints as '%s', which is another address", text, printed);
        net_address_loopback(&address);
    }
    free(text);
}

static void judge_addresses(struct fuzz_input *input)
{
    static struct cluster_addresses addresses;
    char *text = fuzz_take_text(input);
    struct error error = {0};
    int status = cluster_addresses_parse(&addresses, "memory", text, 7100, &error);
    fuzz_must(!status == !error.text[0], "addresses: status %d, message '%s'", status, error.text);
    fuzz_must(addresses.count <= CLUSTER_ADDRESSES_MAX, "%u addresses", addresses.count);
    if (!status)
        cluster_guard(&addresses, false, "it", "do something", &error);
    free(text);
}

/* ---- files ---- */

/* A file in memory, and its name. */
static int make_file(const void *bytes, size_t length, char name[64])
{
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_must(file >= 0 && write(file, bytes, length) == (ssize_t)length && !fchmod(file, 0600),
              "no memory file");
    snprintf(name, 64, "/proc/self/fd/%d", file);
    return file;
}

static void judge_file(struct fuzz_input *input)
{
    static const struct settings_command command = {.name = "compute", .table = sample_table};
    struct sample sample = {0};
    struct error error = {0};
    char name[64];
    int file = make_file(input->bytes, input->length, name);
    int status = settings_read_file(&command, &sample, name, &error);
    fuzz_must(!status == !error.text[0], "file: status %d, message '%s'", status, error.text);
    if (!status)
        for (const struct option_entry *at = sample_table; at->kind != OPTION_END; at++) {
            const struct sample nothing = {0};
            bool set = at->kind != OPTION_TEXT && memcmp((const char *)&sample + at->offset,
                                                         (const char *)&nothing + at->offset, sizeof(bool));
            if (set)
                judge_bounds(at, &sample);
        }
    option_free(sample_table, &sample);
    close(file);
}

static void judge_secret(struct fuzz_input *input)
{
    char name[64], *secret = malloc(NET_SECRET_MAX + 1);
    struct error error = {0};
    size_t length = 0, line = 0;
    int file = make_file(input->bytes, input->length, name);
    int status = net_secret_read(name, secret, &length, &error);
    const uint8_t *bytes = input->bytes;
    while (line < input->length && bytes[line] != '\n')
        line++;
    bool ended = line < input->length;
    if (ended && line && bytes[line - 1] == '\r')
        line--;
    bool good = line >= 8 && line <= NET_SECRET_MAX && !memchr(bytes, 0, line);
    fuzz_must(!status == good, "secret: status %d for a line of %zu bytes", status, line);
    fuzz_must(status || (length == line && !memcmp(secret, bytes, line) && !secret[line]),
              "secret: another one");
    close(file);
    free(secret);
}

/* ---- the benchmark, the library ---- */

static void judge_mix(struct fuzz_input *input)
{
    char *text = fuzz_take_text(input);
    struct workload workload;
    struct error error = {0};
    if (!workload_parse_mix(&workload, text, &error)) {
        double sum = 0;
        for (unsigned i = 0; i < WORKLOAD_KINDS; i++) {
            fuzz_must(workload.share[i] >= 0 && workload.share[i] <= 1, "mix: a share of %g",
                      workload.share[i]);
            sum += workload.share[i];
        }
        fuzz_must(sum > 0.999 && sum < 1.001, "mix: shares of %g", sum);
        workload_writes(&workload);
    } else {
        fuzz_must(error.text[0], "mix: refused without a message");
    }
    error_clear(&error);
    fuzz_must(!workload_find(&workload, text, &error) == !error.text[0], "workload: message '%s'",
              error.text);
    free(text);
}

/* What cannot be opened, since its text is none: others would be dialled. */
static void judge_uri(struct fuzz_input *input)
{
    char *text = fuzz_take_text(input), message[300] = "", piece[400];
    struct net_address address;
    bool possible = true;
    const char *at = text;
    do {
        size_t length = strcspn(at, ",");
        snprintf(piece, sizeof piece, "%.*s", (int)length, at);
        possible &= length < sizeof piece && !net_address_parse(&address, piece, 7100, NULL);
        at += length;
    } while (*at++ == ',');
    const struct banyan_options options = {
        .struct_bytes = sizeof options, .uri = text, .message = message, .message_bytes = sizeof message};
    struct banyan *banyan = NULL;
    if (!possible && *text && strcmp(text, "local:")) {
        int status = banyan_open(&banyan, &options);
        fuzz_must(status == BANYAN_EINVAL && !banyan && message[0], "uri '%s': status %d, message '%s'", text,
                  status, message);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static void (*const judges[])(struct fuzz_input *) = {judge_options, judge_options,   judge_numbers,
                                                          judge_address, judge_addresses, judge_file,
                                                          judge_secret,  judge_mix,       judge_uri};
    struct fuzz_input input = {bytes, length};
    if (length > 8192)
        return 0;
    judges[fuzz_byte(&input) % (sizeof judges / sizeof *judges)](&input);
    return 0;
}
