/* Reading words and numbers out of a message; the first failure sticks. */
#ifndef MODELBLASTER_TEXT_H
#define MODELBLASTER_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { MB_MOST_WORD = 512 };

typedef struct {
    const char *cursor;
    char *error;
    size_t capacity;
    int failed;
} mb_reader;

void mb_fail(mb_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mb_read_word(mb_reader *reader, char word[MB_MOST_WORD]);
int64_t mb_read_number(mb_reader *reader);
void mb_expect(mb_reader *reader, const char *wanted);

/* `length:bytes`, as fresh memory that ends in a zero. NULL on failure. */
char *mb_read_bytes(mb_reader *reader);

/* Zeroed memory for one thing more than asked for, so that no things are no failure. */
void *mb_allocate(mb_reader *reader, int64_t count, size_t size);

#endif
