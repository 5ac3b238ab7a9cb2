/*
 * json_unsigned.h - unsigned numbers of 64 bits in JSON, for the benchmark's reports and `banyan sim --json`.
 *
 * Integers of most JSON readers, and of jansson, have 63 bits and a sign. So a number of 2^63 or more is
 * written as a string of its decimal digits; every smaller one is an integer.
 */
#ifndef BENCH_JSON_UNSIGNED_H
#define BENCH_JSON_UNSIGNED_H

#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* A new reference; NULL: no memory. */
static inline json_t *json_unsigned(uint64_t value)
{
    char digits[24];
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    return json_string(digits);
}

#endif
