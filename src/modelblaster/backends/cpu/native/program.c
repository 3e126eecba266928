/* The text form of a flattened plan, and its execution.
 *
 * Words separated by white space, every count before what it counts:
 *   objects N path...            paths as length:bytes
 *   steps N, then each of
 *     L entry range grain  arguments (region offset)...  sizes value...
 *     F region offset item_bytes pattern rank shape... strides...
 *     C region offset region offset item_bytes rank shape... source_strides... destination_strides...
 * Offsets are in bytes, strides in elements. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "text.h"

enum { MOST_RANK = 16, MOVE_GRAIN = 16384 };

typedef struct {
    int64_t region, offset;
} place_t;

typedef struct {
    char kind;
    union {
        struct {
            mb_entry entry;
            int64_t range, grain;
            int64_t argument_count, size_count;
            place_t *arguments;
            int64_t *sizes;
        } launch;
        struct {
            place_t target, source;
            int64_t item_bytes, rank;
            uint64_t pattern;
            int64_t shape[MOST_RANK], target_strides[MOST_RANK], source_strides[MOST_RANK];
        } move;
    } as;
} step_t;

struct mb_program {
    int64_t object_count, step_count, most_arguments;
    void **objects;
    step_t *steps;
    void **pointers;
};

static void *open_object(mb_reader *reader) {
    char *path = mb_read_bytes(reader);
    void *object = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path && !object)
        mb_fail(reader, "cannot load %s: %s", path, dlerror());
    free(path);
    return object;
}

static mb_entry find_entry(mb_reader *reader, const mb_program *program) {
    char name[MB_MOST_WORD];
    mb_read_word(reader, name);
    for (int64_t index = 0; index < program->object_count && !reader->failed; index++) {
        void *found = dlsym(program->objects[index], name);
        if (found)
            return (mb_entry)found;
    }
    mb_fail(reader, "no object has the entry '%s'", name);
    return NULL;
}

static place_t read_place(mb_reader *reader) {
    place_t place;
    place.region = mb_read_number(reader);
    place.offset = mb_read_number(reader);
    return place;
}

static void read_launch(mb_reader *reader, mb_program *program, step_t *step) {
    step->as.launch.entry = find_entry(reader, program);
    step->as.launch.range = mb_read_number(reader);
    step->as.launch.grain = mb_read_number(reader);
    int64_t count = step->as.launch.argument_count = mb_read_number(reader);
    step->as.launch.arguments = mb_allocate(reader, count, sizeof(place_t));
    for (int64_t index = 0; index < count && !reader->failed; index++)
        step->as.launch.arguments[index] = read_place(reader);
    if (count > program->most_arguments)
        program->most_arguments = count;
    count = step->as.launch.size_count = mb_read_number(reader);
    step->as.launch.sizes = mb_allocate(reader, count, sizeof(int64_t));
    for (int64_t index = 0; index < count && !reader->failed; index++)
        step->as.launch.sizes[index] = mb_read_number(reader);
}

static void read_dimensions(mb_reader *reader, int64_t *values, int64_t rank) {
    for (int64_t index = 0; index < rank && !reader->failed; index++)
        values[index] = mb_read_number(reader);
}

static void read_move(mb_reader *reader, step_t *step) {
    if (step->kind == 'C')
        step->as.move.source = read_place(reader);
    step->as.move.target = read_place(reader);
    step->as.move.item_bytes = mb_read_number(reader);
    if (step->kind == 'F')
        step->as.move.pattern = (uint64_t)mb_read_number(reader);
    int64_t rank = step->as.move.rank = mb_read_number(reader);
    if (rank < 1 || rank > MOST_RANK) {
        mb_fail(reader, "a tensor of rank %lld", (long long)rank);
        return;
    }
    read_dimensions(reader, step->as.move.shape, rank);
    if (step->kind == 'C')
        read_dimensions(reader, step->as.move.source_strides, rank);
    read_dimensions(reader, step->as.move.target_strides, rank);
}

static void read_steps(mb_reader *reader, mb_program *program) {
    mb_expect(reader, "steps");
    int64_t count = mb_read_number(reader);
    program->steps = mb_allocate(reader, count, sizeof(step_t));
    for (int64_t index = 0; index < count && !reader->failed; index++) {
        step_t *step = &program->steps[index];
        char kind[MB_MOST_WORD];
        mb_read_word(reader, kind);
        step->kind = kind[0];
        program->step_count = index + 1;
        if (step->kind == 'L')
            read_launch(reader, program, step);
        else if (step->kind == 'F' || step->kind == 'C')
            read_move(reader, step);
        else
            mb_fail(reader, "the program has a step '%s'", kind);
    }
}

mb_program *mb_program_load(const char *text, char *error, size_t capacity) {
    mb_reader reader = {text, error, capacity, 0};
    mb_program *program = mb_allocate(&reader, 1, sizeof *program);
    if (!program)
        return NULL;
    mb_expect(&reader, "objects");
    int64_t count = mb_read_number(&reader);
    program->objects = mb_allocate(&reader, count, sizeof(void *));
    for (int64_t index = 0; index < count && !reader.failed; index++) {
        program->objects[index] = open_object(&reader);
        program->object_count = index + (program->objects[index] != NULL);
    }
    read_steps(&reader, program);
    program->pointers = mb_allocate(&reader, program->most_arguments, sizeof(void *));
    if (reader.failed) {
        mb_program_free(program);
        return NULL;
    }
    return program;
}

void mb_program_free(mb_program *program) {
    for (int64_t index = 0; index < program->step_count; index++)
        if (program->steps[index].kind == 'L') {
            free(program->steps[index].as.launch.arguments);
            free(program->steps[index].as.launch.sizes);
        }
    for (int64_t index = 0; index < program->object_count; index++)
        dlclose(program->objects[index]);
    free(program->steps);
    free(program->objects);
    free(program->pointers);
    free(program);
}

typedef struct {
    const step_t *step;
    void *const *pointers;
} launch_context_t;

static void launch_part(const void *context, int64_t begin, int64_t end, void *scratch) {
    const launch_context_t *launch = context;
    launch->step->as.launch.entry(launch->pointers, launch->step->as.launch.sizes, begin, end, scratch);
}

typedef struct {
    const step_t *step;
    char *target;
    const char *source;
} move_context_t;

static void fill_run(char *target, int64_t stride, int64_t count, int64_t item_bytes, uint64_t pattern) {
#define FILL(type)                                                                                                     \
    for (int64_t index = 0; index < count; index++)                                                                    \
        ((type *)target)[index * stride] = (type)pattern;
    switch (item_bytes) {
    case 1: FILL(uint8_t) break;
    case 2: FILL(uint16_t) break;
    case 4: FILL(uint32_t) break;
    default: FILL(uint64_t) break;
    }
#undef FILL
}

static void copy_run(char *target, int64_t target_stride, const char *source, int64_t source_stride, int64_t count,
                     int64_t item_bytes) {
    if (target_stride == 1 && source_stride == 1) {
        memcpy(target, source, (size_t)(count * item_bytes));
        return;
    }
#define COPY(type)                                                                                                     \
    for (int64_t index = 0; index < count; index++)                                                                    \
        ((type *)target)[index * target_stride] = ((const type *)source)[index * source_stride];
    switch (item_bytes) {
    case 1: COPY(uint8_t) break;
    case 2: COPY(uint16_t) break;
    case 4: COPY(uint32_t) break;
    default: COPY(uint64_t) break;
    }
#undef COPY
}

/* Elements [begin, end) in row-major order of the shape, one run of the last axis at a time. */
static void move_part(const void *context, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    const move_context_t *move = context;
    const step_t *step = move->step;
    const int64_t *shape = step->as.move.shape, last = step->as.move.rank - 1;
    const int64_t item_bytes = step->as.move.item_bytes;
    for (int64_t index = begin; index < end;) {
        int64_t rest = index / shape[last], within = index % shape[last], target = 0, source = 0;
        target = within * step->as.move.target_strides[last];
        source = within * step->as.move.source_strides[last];
        for (int64_t axis = last - 1; axis >= 0; axis--) {
            target += rest % shape[axis] * step->as.move.target_strides[axis];
            source += rest % shape[axis] * step->as.move.source_strides[axis];
            rest /= shape[axis];
        }
        int64_t count = shape[last] - within < end - index ? shape[last] - within : end - index;
        char *to = move->target + target * item_bytes;
        if (step->kind == 'F')
            fill_run(to, step->as.move.target_strides[last], count, item_bytes, step->as.move.pattern);
        else
            copy_run(to, step->as.move.target_strides[last], move->source + source * item_bytes,
                     step->as.move.source_strides[last], count, item_bytes);
        index += count;
    }
}

static char *locate(place_t place, char *const *bases) { return bases[place.region] + place.offset; }

static void run_move(mb_pool *pool, const step_t *step, char *const *bases) {
    move_context_t context = {step, locate(step->as.move.target, bases), NULL};
    if (step->kind == 'C')
        context.source = locate(step->as.move.source, bases);
    int64_t elements = 1;
    for (int64_t axis = 0; axis < step->as.move.rank; axis++)
        elements *= step->as.move.shape[axis];
    mb_pool_run(pool, move_part, &context, elements, MOVE_GRAIN, NULL, 0);
}

void mb_program_run(mb_pool *pool, const mb_program *program, char *const *bases, char *scratch,
                    int64_t scratch_stride) {
    for (int64_t index = 0; index < program->step_count; index++) {
        const step_t *step = &program->steps[index];
        if (step->kind != 'L') {
            run_move(pool, step, bases);
            continue;
        }
        for (int64_t argument = 0; argument < step->as.launch.argument_count; argument++)
            program->pointers[argument] = locate(step->as.launch.arguments[argument], bases);
        launch_context_t context = {step, program->pointers};
        mb_pool_run(pool, launch_part, &context, step->as.launch.range, step->as.launch.grain, scratch, scratch_stride);
    }
}
