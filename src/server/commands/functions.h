/*
 * functions.h - the functions of all commands that stand in another file than their table: strings.c has the
 * table of commands about strings, keys.c that of commands about keys, server.c that of commands about the
 * server and its connections.
 *
 * They run on fibers, whose stacks are small: what is larger than a few hundred bytes goes to the heap.
 */
#ifndef SERVER_COMMANDS_FUNCTIONS_H
#define SERVER_COMMANDS_FUNCTIONS_H

#include "server/command.h"

/* strings.c, for GETEX too */
server_point_function get_point;
/* set.c */
server_command_function set_run, setnx_run, setex_run, psetex_run, getset_run, getdel_run, getex_run;
server_put_function set_put, setex_put, psetex_put;
/* mset.c */
server_command_function mset_run, msetnx_run;
/* splice.c */
server_command_function append_run, setrange_run;
/* bitfield.c */
server_command_function bitfield_run, bitfield_ro_run;
/* bitop.c */
server_command_function bitop_run;
/* numbers.c */
server_command_function incr_run, decr_run, incrby_run, decrby_run, incrbyfloat_run;
/* expiry.c */
server_command_function expire_run, pexpire_run, expireat_run, pexpireat_run, persist_run;
server_point_function ttl_point, pttl_point, expiretime_point, pexpiretime_point;
/* keyspace.c */
server_command_function scan_run, keys_run, randomkey_run, flush_run;
/* saving.c */
server_command_function save_run, bgsave_run, bgrewriteaof_run, lastsave_run, waitaof_run;
/* connection.c */
server_command_function ping_run, echo_run, quit_run, reset_run, hello_run, auth_run, select_run;
/* transactions.c */
server_command_function multi_run, exec_run, discard_run, watch_run, unwatch_run;
/* client_list.c */
server_command_function client_list_run, client_info_run, client_kill_run;
/* command.c, info.c */
server_command_function command_command_run, info_run;
/* client.c, command.c, config.c, cut.c, memory.c, slowlog.c */
extern const struct server_subcommand client_subcommands[], command_subcommands[], config_subcommands[],
    cut_subcommands[], memory_subcommands[], object_subcommands[], slowlog_subcommands[];

/* Sets the connection's name, or replies an error and returns false. */
bool client_name_set(struct server_call *call, const struct resp_argument *name);

#endif
