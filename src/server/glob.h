/*
 * glob.h - patterns as KEYS, SCAN MATCH and CONFIG GET take them: *, ?, [abc], [^abc], [a-c], \ before any of
 * these; any other byte stands for itself. As in Redis, a class that is not closed ends with the pattern, and
 * a range may be written backwards. Unlike Redis, bytes above 127 are ordered as unsigned.
 *
 * A pattern is compiled once, in time linear in its length, and then matched in at most (length of the text)
 * * GLOB_SINGLES_MAX steps, whatever it is: no pattern costs exponential time. Pure; any thread.
 */
#ifndef SERVER_GLOB_H
#define SERVER_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A pattern that needs more bytes than this in a text matches nothing: no key or name is as long. */
#define GLOB_SINGLES_MAX 255u

struct glob;
/* NULL: no memory. */
struct glob *glob_create(const char *pattern, size_t length, bool any_case);
void glob_destroy(struct glob *glob);
bool glob_matches(const struct glob *glob, const void *text, size_t length);
/* Every text matches. */
bool glob_matches_all(const struct glob *glob);
/* The bytes with which every matching text begins; returns their number, 0 with any_case. *whole: the prefix
 * is the only text that matches. */
size_t glob_prefix(const struct glob *glob, uint8_t prefix[GLOB_SINGLES_MAX], bool *whole);
/* For a pattern that is used once. False also without memory. */
bool glob_match_once(const char *pattern, size_t length, const void *text, size_t text_length, bool any_case);

#endif
