/*
 * command.h - the subcommands of `banyan`. Each gets its own argument vector (argv[0] is "banyan NAME") and
 * returns the process's exit code.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

enum command_exit {
    COMMAND_OK = 0,
    COMMAND_FAILED = 1, /* the work could not be done */
    COMMAND_USAGE = 2,  /* what was asked for makes no sense; the message says what to change */
};

int command_bench(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_memory(int argc, char **argv);
int command_compute(int argc, char **argv);
int command_check(int argc, char **argv);
int command_drop(int argc, char **argv);
int command_balance(int argc, char **argv);
int command_dump(int argc, char **argv);
int command_load(int argc, char **argv);
int command_members(int argc, char **argv);
int command_ranges(int argc, char **argv);
int command_recover(int argc, char **argv);
int command_save(int argc, char **argv);
int command_sim(int argc, char **argv);
int command_top(int argc, char **argv);
int command_version(int argc, char **argv);

#endif
