/*
 * json_numbers.h - numbers that JSON has no place for, in the benchmark's reports and `banyan sim --json`.
 *
 * Integers of most JSON readers, and of jansson, have 63 bits and a sign. So a number of 2^63 or more is
 * written as a string of its decimal digits; every smaller one is an integer. A real number that is not
 * finite is written as null.
 */
#ifndef BENCH_JSON_NUMBERS_H
#define BENCH_JSON_NUMBERS_H

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

/* Both give a new reference; NULL: no memory. */
static inline json_t *json_unsigned(uint64_t value)
{
    char digits[24];
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    return json_string(digits);
}

static inline json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
