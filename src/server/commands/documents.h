/*
 * documents.h - what COMMAND INFO, LIST, DOCS and GETKEYSANDFLAGS say of commands beyond their entries in the
 * table, and the syntax of arguments as text, out of which COMMAND DOCS makes its tree. Constant; any thread.
 *
 * SYNTAX. Elements with blanks between them:
 *   name            an argument, a string; name:type one of another type (key, integer, double, pattern,
 *                   unix-time); the name `key` is a key
 *   TOKEN           a word that stands for itself
 *   TOKEN=element   a word before an element
 *   {name a | b}    one of several elements
 *   <name a b>      several elements together
 *   element...      once or more; element+++ the same with its token each time
 *   [element]       optional
 */
#ifndef SERVER_COMMANDS_DOCUMENTS_H
#define SERVER_COMMANDS_DOCUMENTS_H

#include "server/resp_writer.h"

struct command_document {
    const char *name;  /* "get", "client|list" */
    const char *since; /* of Redis, or of Banyan where Redis has no such command */
    /* Words with blanks between them: as COMMAND INFO shows them, categories without their @. */
    const char *flags, *categories, *tips;
    /* What is done to the keys; behind a semicolon, what to those after the first one, if it is something
     * else. */
    const char *key_flags;
    const char *syntax;
    int first_key, last_key, key_step; /* of a subcommand */
    const char *summary;               /* of a subcommand */
};
/* NULL: there is none. */
const struct command_document *command_document_find(const char *name);

/* Replies them as an array, as COMMAND DOCS has them. */
void syntax_reply(struct resp_writer *reply, const char *syntax);

#endif
