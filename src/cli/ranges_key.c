/* ranges_key.c - keys as text on a command line and back; contract in ranges.h. */
#include <stdio.h>
#include <string.h>

#include "cli/ranges.h"

char *ranges_key_format(const void *key, size_t length, char text[RANGES_KEY_TEXT])
{
    const uint8_t *bytes = key;
    char *to = text;
    for (size_t i = 0; i < length && i < FORMAT_KEY_MAX; i++) {
        if (bytes[i] == '\\')
            to += sprintf(to, "\\\\");
        else if (bytes[i] > ' ' && bytes[i] <= '~')
            *to++ = (char)bytes[i];
        else
            to += sprintf(to, "\\x%02x", bytes[i]);
    }
    *to = 0;
    return text;
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef",
               *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int ranges_key_parse(const char *text, uint8_t key[FORMAT_KEY_MAX], size_t *length, struct error *error)
{
    size_t used = 0;
    for (const char *at = text; *at; at++) {
        int byte = (unsigned char)*at;
        if (byte == '\\' && at[1] == '\\') {
            at++;
        } else if (byte == '\\') {
            int high = at[1] == 'x' ? digit(at[2]) : -1, low = high >= 0 ? digit(at[3]) : -1;
            if (low < 0)
                return error_set(
                    error, BANYAN_EINVAL,
                    "key '%.80s': behind a backslash comes another one, or x and two hexadecimal "
                    "digits",
                    text);
            byte = high * 16 + low;
            at += 3;
        }
        if (used == FORMAT_KEY_MAX)
            return error_set(error, BANYAN_EINVAL, "key '%.80s...' is longer than %u bytes", text,
                             (unsigned)FORMAT_KEY_MAX);
        key[used++] = (uint8_t)byte;
    }
    *length = used;
    return 0;
}
