/*
 * syntax.c - the syntax of arguments, from a text to the tree that COMMAND DOCS replies; contract in
 * documents.h. The texts are this program's own, so a mistake in one is an assertion (and the tests read all
 * of them).
 */
#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "server/commands/documents.h"

#define NODES_MAX 48u
#define TEXT_MAX  48u

struct span {
    const char *at;
    size_t length;
};
struct node {
    struct span name, token;
    const char *type;
    bool optional, multiple, multiple_token;
    uint8_t first, next; /* children, and the parent's next child; 0: none */
};
struct tree {
    struct node nodes[NODES_MAX]; /* the first is the root */
    uint8_t count;
};

static void blanks_skip(const char **at)
{
    while (**at == ' ')
        ++*at;
}

/* Up to what ends a word. */
static struct span word_take(const char **at)
{
    const char *begin = *at;
    while (**at && !strchr(" []{}<>|=", **at) && strncmp(*at, "...", 3) != 0 && strncmp(*at, "+++", 3) != 0)
        ++*at;
    assert(*at > begin);
    return (struct span){begin, (size_t)(*at - begin)};
}

/* Cuts ":type" off the name of an argument, if that is a type and no part of the name. */
static const char *type_cut(struct span *name)
{
    static const char *const types[] = {"key", "integer", "double", "pattern", "unix-time", "string"};
    if (name->length == 3 && memcmp(name->at, "key", 3) == 0)
        return "key";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t length = strlen(types[i]);
        if (name->length > length && name->at[name->length - length - 1] == ':' &&
            memcmp(name->at + name->length - length, types[i], length) == 0) {
            name->length -= length + 1;
            return types[i];
        }
    }
    return "string";
}

static uint8_t element_parse(struct tree *tree, const char **at);

/* Children up to `end`. */
static void children_parse(struct tree *tree, uint8_t parent, const char **at, char end)
{
    uint8_t last = 0;
    for (blanks_skip(at); **at != end; blanks_skip(at)) {
        if (**at == '|') {
            ++*at;
            continue;
        }
        uint8_t child = element_parse(tree, at);
        if (last)
            tree->nodes[last].next = child;
        else
            tree->nodes[parent].first = child;
        last = child;
    }
}

static void body_parse(struct tree *tree, uint8_t index, const char **at)
{
    struct node *node = &tree->nodes[index];
    if (**at == '{' || **at == '<') {
        char end = **at == '{' ? '}' : '>';
        node->type = **at == '{' ? "oneof" : "block";
        ++*at;
        node->name = word_take(at);
        children_parse(tree, index, at, end);
        ++*at;
        return;
    }
    struct span word = word_take(at);
    if (**at == '=') {
        assert(!node->token.at);
        ++*at;
        node->token = word;
        body_parse(tree, index, at);
    } else if (isupper((unsigned char)*word.at) && !node->token.at) {
        node->token = node->name = word;
        node->type = "pure-token";
    } else {
        node->name = word;
        node->type = type_cut(&node->name);
    }
}

static uint8_t element_parse(struct tree *tree, const char **at)
{
    assert(tree->count < NODES_MAX);
    uint8_t index = tree->count++;
    tree->nodes[index] = (struct node){.optional = **at == '['};
    *at += **at == '[';
    body_parse(tree, index, at);
    struct node *node = &tree->nodes[index];
    node->multiple_token = strncmp(*at, "+++", 3) == 0;
    node->multiple = node->multiple_token || strncmp(*at, "...", 3) == 0;
    *at += node->multiple ? 3 : 0;
    assert(!node->optional || **at == ']');
    *at += node->optional;
    return index;
}

static void tree_parse(struct tree *tree, const char *syntax)
{
    tree->count = 1;
    tree->nodes[0] = (struct node){.type = "block"};
    children_parse(tree, 0, &syntax, 0);
}

static size_t children_count(const struct tree *tree, uint8_t parent)
{
    size_t count = 0;
    for (uint8_t child = tree->nodes[parent].first; child; child = tree->nodes[child].next)
        count++;
    return count;
}

static void children_reply(struct resp_writer *reply, const struct tree *tree, uint8_t parent);

static void flags_reply(struct resp_writer *reply, const struct node *node)
{
    resp_text(reply, "flags");
    resp_set(reply, (size_t)node->optional + node->multiple + node->multiple_token);
    if (node->optional)
        resp_simple(reply, "optional");
    if (node->multiple)
        resp_simple(reply, "multiple");
    if (node->multiple_token)
        resp_simple(reply, "multiple_token");
}

static void name_reply(struct resp_writer *reply, const struct node *node)
{
    char text[TEXT_MAX];
    assert(node->name.length <= sizeof text);
    for (size_t i = 0; i < node->name.length; i++)
        text[i] = node->name.at == node->token.at ? (char)tolower((unsigned char)node->name.at[i])
                                                  : node->name.at[i];
    resp_text(reply, "name");
    resp_bulk(reply, text, node->name.length);
}

/* Keys before this one: each has its own entry among the descriptions of a command's keys. */
static int64_t keys_before(const struct tree *tree, uint8_t index)
{
    int64_t keys = 0;
    for (uint8_t i = 1; i < index; i++)
        keys += strcmp(tree->nodes[i].type, "key") == 0;
    return keys;
}

static void node_reply(struct resp_writer *reply, const struct tree *tree, uint8_t index)
{
    const struct node *node = &tree->nodes[index];
    bool key = strcmp(node->type, "key") == 0, flags = node->optional || node->multiple;
    resp_map(reply, 2 + (size_t)key + (node->token.at != NULL) + flags + (node->first != 0));
    name_reply(reply, node);
    resp_text(reply, "type");
    resp_text(reply, node->type);
    if (key) {
        resp_text(reply, "key_spec_index");
        resp_integer(reply, keys_before(tree, index));
    }
    if (node->token.at) {
        resp_text(reply, "token");
        resp_bulk(reply, node->token.at, node->token.length);
    }
    if (flags)
        flags_reply(reply, node);
    if (node->first) {
        resp_text(reply, "arguments");
        children_reply(reply, tree, index);
    }
}

static void children_reply(struct resp_writer *reply, const struct tree *tree, uint8_t parent)
{
    resp_array(reply, children_count(tree, parent));
    for (uint8_t child = tree->nodes[parent].first; child; child = tree->nodes[child].next)
        node_reply(reply, tree, child);
}

void syntax_reply(struct resp_writer *reply, const char *syntax)
{
    struct tree tree;
    tree_parse(&tree, syntax);
    children_reply(reply, &tree, 0);
}
