/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

static void new_line(struct json *j) {
    fprintf(j->out, "\n%*s", (int)(2 * j->depth), "");
}

/* The bytes of the UTF-8 sequence at `text`, or 0 if there is none. */
static uint32_t utf8_length(const unsigned char *text) {
    const uint32_t length = text[0] < 0x80   ? 1
                            : text[0] < 0xc2 ? 0
                            : text[0] < 0xe0 ? 2
                            : text[0] < 0xf0 ? 3
                            : text[0] < 0xf5 ? 4
                                             : 0;
    for (uint32_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    /* overlong forms, surrogates, beyond U+10FFFF */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] >= 0xa0) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] >= 0x90))
        return 0;
    return length;
}

static void quoted(struct json *j, const char *value) {
    const unsigned char *text = (const unsigned char *)value;
    putc('"', j->out);
    while (*text) {
        const uint32_t length = utf8_length(text);
        if (length == 0) {
            fputs("\\ufffd", j->out);
            text++;
        } else if (*text == '"' || *text == '\\') {
            fprintf(j->out, "\\%c", *text++);
        } else if (*text < 0x20) {
            fprintf(j->out, "\\u%04x", *text++);
        } else {
            fwrite(text, 1, length, j->out);
            text += length;
        }
    }
    putc('"', j->out);
}

static void member(struct json *j, const char *key) {
    if (j->filled[j->depth])
        putc(',', j->out);
    j->filled[j->depth] = true;
    new_line(j);
    if (key) {
        quoted(j, key);
        fputs(": ", j->out);
    }
}

static void open_level(struct json *j, char bracket) {
    putc(bracket, j->out);
    j->depth++;
    assert(j->depth < JSON_DEPTH_MAX);
    j->filled[j->depth] = false;
}

static void close_level(struct json *j, char bracket) {
    const bool filled = j->filled[j->depth];
    j->depth--;
    if (filled)
        new_line(j);
    putc(bracket, j->out);
}

void json_begin(struct json *j, FILE *out) {
    j->out = out;
    j->depth = 0;
    open_level(j, '{');
}

void json_end(struct json *j) {
    close_level(j, '}');
    putc('\n', j->out);
}

void json_object(struct json *j, const char *key) {
    member(j, key);
    open_level(j, '{');
}

void json_object_end(struct json *j) {
    close_level(j, '}');
}

void json_array(struct json *j, const char *key) {
    member(j, key);
    open_level(j, '[');
}

void json_array_end(struct json *j) {
    close_level(j, ']');
}

void json_string(struct json *j, const char *key, const char *value) {
    if (!value) {
        json_null(j, key);
        return;
    }
    member(j, key);
    quoted(j, value);
}

void json_int(struct json *j, const char *key, int64_t value) {
    member(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_uint(struct json *j, const char *key, uint64_t value) {
    member(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_bool(struct json *j, const char *key, bool value) {
    member(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *key) {
    member(j, key);
    fputs("null", j->out);
}

void json_double(struct json *j, const char *key, double value, int decimals) {
    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    member(j, key);
    fprintf(j->out, "%.*f", decimals, value);
}
