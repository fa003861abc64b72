/* SPDX-License-Identifier: MIT
 *
 * A writer of JSON, for the --json of every command.
 *
 * Debian's jansson and json-c would do; but they are made to build, search and parse documents, and
 * would be the only thing that an installed command, also out of a Python wheel, depends on. What
 * is wanted is a dozen calls that print a value as soon as it is known, and that is all there is
 * here.
 */
#ifndef FASTCLOCK_CLI_JSON_H
#define FASTCLOCK_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH_MAX = 16 };

struct json {
    FILE *out;
    uint32_t depth;
    bool filled[JSON_DEPTH_MAX]; /* the object or array at this depth has a member */
};

/* The document is one object: json_begin opens it, json_end closes it and ends the line. */
void json_begin(struct json *j, FILE *out);
void json_end(struct json *j);

/* `key` is the member's name in an object and NULL in an array. Strings are UTF-8, or any bytes:
 * those that are no UTF-8 come out as U+FFFD. NULL for a string is null. */
void json_object(struct json *j, const char *key);
void json_object_end(struct json *j);
void json_array(struct json *j, const char *key);
void json_array_end(struct json *j);
void json_string(struct json *j, const char *key, const char *value);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

/* With `decimals` places after the point; what is no finite number is null. */
void json_double(struct json *j, const char *key, double value, int decimals);

#endif
