/* main.c - `banyan`: finds the subcommand and hands over to it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/command.h"

static int command_help(int argc, char **argv);

struct command {
    const char *name, *about;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"serve", "serve Redis clients, all in one process", command_serve},
    {"memory", "serve memory to compute nodes: a memory node", command_memory},
    {"compute", "serve Redis clients from memory nodes: a compute node", command_compute},
    {"check", "prove a cluster's indexes and account for its memory", command_check},
    {"drop", "drop indexes of a cluster with all that they hold", command_drop},
    {"balance", "even a cluster's memory nodes out, or empty one", command_balance},
    {"members", "list a cluster's memory nodes; let one join, or leave", command_members},
    {"dump", "write all keys of a running server into a file", command_dump},
    {"load", "load a file of keys, of Banyan's or Redis's, into a running server", command_load},
    {"ranges", "show and change which compute node owns which key range", command_ranges},
    {"recover", "show what owners' logs have lost, and accept it", command_recover},
    {"save", "make a checkpoint of a cluster on its memory nodes' disks", command_save},
    {"top", "watch running servers", command_top},
    {"bench", "measure the index on this machine or in the simulator", command_bench},
    {"sim", "run whole clusters in a hostile simulation, and judge them", command_sim},
    {"version", "print the version (--json for programs)", command_version},
    {"help", "print this help, or that of a command", command_help},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *file)
{
    fputs("Usage: banyan COMMAND [OPTION...]\n\n"
          "Banyan is an ordered key-value store on disaggregated memory.\n\nCommands:\n",
          file);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].about);
    fputs("\n'banyan COMMAND --help' tells more about a command.\n", file);
}

static int run_command(const struct command *command, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "banyan %s", command->name);
    argv[0] = name;
    return command->run(argc, argv);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    fprintf(stderr, "banyan: unknown command '%.60s'; 'banyan help' lists the commands\n", name);
    return NULL;
}

static int command_help(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stdout);
        return COMMAND_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (!command)
        return COMMAND_USAGE;
    if (command->run == command_help) {
        print_help(stdout);
        return COMMAND_OK;
    }
    char help[] = "--help";
    char *arguments[] = {NULL, help, NULL};
    return run_command(command, 2, arguments);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return COMMAND_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_help(stdout);
        return COMMAND_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        char *arguments[] = {NULL, NULL};
        return run_command(find_command("version"), 1, arguments);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error, and told */
    const struct command *command = find_command(argv[1]);
    return command ? run_command(command, argc - 1, argv + 1) : COMMAND_USAGE;
}
