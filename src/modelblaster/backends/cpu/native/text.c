#define _GNU_SOURCE
#include "text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mb_fail(mb_reader *reader, const char *format, ...) {
    if (reader->failed)
        return;
    reader->failed = 1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, reader->capacity, format, arguments);
    va_end(arguments);
}

void mb_read_word(mb_reader *reader, char word[MB_MOST_WORD]) {
    while (isspace((unsigned char)*reader->cursor))
        reader->cursor++;
    size_t length = 0;
    while (length < MB_MOST_WORD - 1 && reader->cursor[length] && !isspace((unsigned char)reader->cursor[length]))
        length++;
    if (length == 0)
        mb_fail(reader, "the text ends too early");
    memcpy(word, reader->cursor, length);
    word[length] = 0;
    reader->cursor += length;
}

int64_t mb_read_number(mb_reader *reader) {
    char *end;
    long long value = strtoll(reader->cursor, &end, 10);
    if (end == reader->cursor)
        mb_fail(reader, "a number is missing");
    reader->cursor = end;
    return value;
}

void mb_expect(mb_reader *reader, const char *wanted) {
    char word[MB_MOST_WORD];
    mb_read_word(reader, word);
    if (strcmp(word, wanted) != 0)
        mb_fail(reader, "'%s' stands in the place of '%s'", word, wanted);
}

void *mb_allocate(mb_reader *reader, int64_t count, size_t size) {
    void *memory = reader->failed || count < 0 ? NULL : calloc((size_t)count + 1, size);
    if (!memory)
        mb_fail(reader, "memory for %lld things", (long long)count);
    return memory;
}

char *mb_read_bytes(mb_reader *reader) {
    int64_t length = mb_read_number(reader);
    int is_whole = !reader->failed && *reader->cursor == ':' && length >= 0 &&
                   strnlen(reader->cursor + 1, (size_t)length) == (size_t)length;
    if (!is_whole) {
        mb_fail(reader, "a piece of text is missing");
        return NULL;
    }
    char *bytes = mb_allocate(reader, length, 1);
    if (bytes)
        memcpy(bytes, reader->cursor + 1, (size_t)length);
    reader->cursor += length + 1;
    return bytes;
}
