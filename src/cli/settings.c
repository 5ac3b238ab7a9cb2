#include "cli/settings.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_CONFIG     0x10000
#define KEY_FIRST      0x20000 /* + index in the table */
#define KEY_NO         0x30000 /* + the same: --no-NAME of switches */
#define KEY_END        0x40000
#define NAME_MAX_BYTES 64u
#define LINE_MAX_BYTES 4096u

/* ---- the file ---- */

static int file_line(const struct settings_command *command, void *object, char *line, bool *ours,
                     struct error *error)
{
    char *comment = strchr(line, '#');
    if (comment)
        *comment = 0;
    line = option_trim(line);
    if (!*line)
        return 0;
    size_t length = strlen(line);
    if (*line == '[') {
        if (line[length - 1] != ']')
            return error_set(error, BANYAN_EINVAL, "a section is written [name]");
        line[length - 1] = 0;
        *ours = !strcmp(option_trim(line + 1), command->name);
        return 0;
    }
    if (!*ours)
        return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return error_set(error, BANYAN_EINVAL, "'%.60s': write name = value", line);
    *equals = 0;
    return option_set(command->table, object, option_trim(line), option_trim(equals + 1), error);
}

int settings_read_file(const struct settings_command *command, void *object, const char *path,
                       struct error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, BANYAN_EINVAL, "configuration file %s: %s", path, strerror(errno));
    char line[LINE_MAX_BYTES];
    bool ours = true;
    int status = 0;
    for (unsigned number = 1; !status && fgets(line, sizeof line, file); number++) {
        struct error detail = {0};
        if (!strchr(line, '\n') && !feof(file))
            status = error_set(&detail, BANYAN_EINVAL, "the line is longer than %u bytes", LINE_MAX_BYTES);
        else
            status = file_line(command, object, line, &ours, &detail);
        if (status)
            error_set(error, status, "%s:%u: %s", path, number, detail.text);
    }
    if (!status && ferror(file))
        status = error_set(error, BANYAN_EINVAL, "configuration file %s: %s", path, strerror(errno));
    fclose(file);
    return status;
}

/* ---- the environment ---- */

static void variable_name(const char *name, char variable[NAME_MAX_BYTES])
{
    int length = snprintf(variable, NAME_MAX_BYTES, "BANYAN_%s", name);
    for (int i = 0; i < length && i < (int)NAME_MAX_BYTES; i++)
        variable[i] = variable[i] == '-' ? '_' : (char)toupper((unsigned char)variable[i]);
}

static int read_environment(const struct settings_command *command, void *object, struct error *error)
{
    char variable[NAME_MAX_BYTES];
    for (const struct option_entry *entry = command->table; entry->kind != OPTION_END; entry++) {
        struct error detail = {0};
        variable_name(entry->name, variable);
        const char *value = getenv(variable);
        int status = value ? option_set(command->table, object, entry->name, value, &detail) : 0;
        if (status)
            return error_set(error, status, "environment variable %s: %s", variable, detail.text);
    }
    return 0;
}

/* ---- the command line ---- */

struct parse {
    const struct settings_command *command;
    void *object;
    struct settings_arguments *arguments;
    const char *config; /* the file that the library took for the one to read */
};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct parse *parse = state->input;
    struct error error = {0};
    if (key == KEY_CONFIG) {
        parse->config = value; /* read before */
        return 0;
    }
    if (key >= KEY_FIRST && key < KEY_END) { /* argp's own keys lie beyond */
        bool negated = key >= KEY_NO;
        const struct option_entry *entry = parse->command->table + (key - (negated ? KEY_NO : KEY_FIRST));
        if (option_set(parse->command->table, parse->object, entry->name,
                       negated ? "off"
                       : value ? value
                               : "on",
                       &error))
            argp_error(state, "%s", error.text);
        return 0;
    }
    if (key == ARGP_KEY_ARG) {
        if (!parse->arguments || parse->arguments->count == parse->command->arguments_max)
            argp_error(state, "unexpected argument '%.60s'", value);
        else
            parse->arguments->values[parse->arguments->count++] = value;
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static unsigned table_length(const struct option_entry *table)
{
    unsigned count = 0;
    while (table[count].kind != OPTION_END)
        count++;
    return count;
}

/* Its name alone says on, and no-NAME off. */
static bool is_switch(const struct option_entry *entry)
{
    return entry->kind == OPTION_BOOL || entry->kind == OPTION_SWITCH;
}

static const char *placeholder(const struct option_entry *entry)
{
    if (entry->kind == OPTION_BOOL)
        return "on|off";
    return entry->unit ? entry->unit : entry->kind == OPTION_TEXT ? "TEXT" : "N";
}

/* The table as argp's; `texts` gets what must be freed. */
static struct argp_option *make_options(const struct settings_command *command, const void *defaults,
                                        char ***texts)
{
    unsigned count = table_length(command->table);
    struct argp_option *options = calloc(2 * count + 2, sizeof *options);
    *texts = calloc(2 * count + 1, sizeof **texts);
    unsigned used = 0;
    if (!options || !*texts)
        return options;
    options[used++] =
        (struct argp_option){"config", KEY_CONFIG, "FILE", 0, "Read settings from this file", 0};
    for (unsigned i = 0; i < count; i++) {
        const struct option_entry *entry = &command->table[i];
        char value[128];
        option_format(entry, defaults, value, sizeof value);
        if (asprintf(&(*texts)[2 * i], *value ? "%s (default: %s)" : "%s", entry->help, value) < 0)
            (*texts)[2 * i] = NULL;
        options[used++] = (struct argp_option){entry->name,        KEY_FIRST + (int)i,
                                               placeholder(entry), is_switch(entry) ? OPTION_ARG_OPTIONAL : 0,
                                               (*texts)[2 * i],    0};
        if (is_switch(entry) && asprintf(&(*texts)[2 * i + 1], "no-%s", entry->name) > 0)
            options[used++] =
                (struct argp_option){(*texts)[2 * i + 1], KEY_NO + (int)i, NULL, OPTION_HIDDEN, NULL, 0};
    }
    return options;
}

static const char *config_file(int argc, char **argv)
{
    const char *path = getenv("BANYAN_CONFIG");
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--config=", 9))
            path = argv[i] + 9;
        else if (!strcmp(argv[i], "--config") && i + 1 < argc)
            path = argv[++i];
    }
    return path && *path ? path : NULL;
}

int settings_read(const struct settings_command *command, void *object, int argc, char **argv,
                  struct settings_arguments *arguments, struct error *error)
{
    char **texts = NULL;
    struct argp_option *options = make_options(command, object, &texts);
    struct parse parse = {command, object, arguments, NULL};
    const char *path = config_file(argc, argv);
    int status = options && texts ? 0 : error_set(error, BANYAN_ENOMEM, "no memory to read the settings");
    if (!status && path)
        status = settings_read_file(command, object, path, error);
    if (!status)
        status = read_environment(command, object, error);
    if (!status) {
        struct argp argp = {options, parse_option, command->arguments, command->documentation, NULL,
                            NULL,    NULL};
        argp_err_exit_status = 2;
        argp_program_version = "banyan " BANYAN_VERSION_TEXT;
        argp_parse(&argp, argc, argv, 0, NULL, &parse);
        if (parse.config && *parse.config && (!path || strcmp(path, parse.config)))
            status = error_set(error, BANYAN_EINVAL,
                               "configuration file %s was not read: write --config in full", parse.config);
    }
    for (unsigned i = 0; texts && i < 2 * table_length(command->table); i++)
        free(texts[i]);
    free(texts);
    free(options);
    return status;
}
