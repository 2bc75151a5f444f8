/* Kernels that the tests call: each shows one part of the interface. */
#include "overdrive.h"

#include <string.h>
#include <time.h>

/* Calls visit(position of an element) in row-major order, whatever the strides. */
#define EACH(t, offset, body)                                                                                           \
    do {                                                                                                                \
        int64_t at_[OD_MAX_NDIM] = {0}, offset = 0;                                                                     \
        for (int64_t left_ = od_tensor_count(t); left_ > 0; left_--) {                                                  \
            body;                                                                                                       \
            for (int32_t axis_ = (t)->ndim - 1; axis_ >= 0; axis_--) {                                                  \
                offset += (t)->strides[axis_];                                                                          \
                if (++at_[axis_] < (t)->shape[axis_]) break;                                                            \
                offset -= at_[axis_] * (t)->strides[axis_];                                                             \
                at_[axis_] = 0;                                                                                         \
            }                                                                                                           \
        }                                                                                                               \
    } while (0)

static od_status scale(od_context *context, const od_tensor *in, const od_tensor *out) {
    double factor = context->parameters[0].value.float64;
    if (od_tensor_is(in, OD_FLOAT, 64)) {
        const double *x = od_tensor_data(in);
        double *y = od_tensor_data(out);
        int64_t n = 0;
        if (!od_tensor_is_dense(out)) return od_fail(context, OD_VALUE_ERROR, "out has gaps");
        EACH(in, offset, y[n++] = x[offset] * factor);
        return OD_OK;
    }
    if (od_tensor_is(in, OD_FLOAT, 32)) {
        const float *x = od_tensor_data(in);
        float *y = od_tensor_data(out);
        int64_t n = 0;
        if (!od_tensor_is_dense(out)) return od_fail(context, OD_VALUE_ERROR, "out has gaps");
        EACH(in, offset, y[n++] = x[offset] * (float)factor);
        return OD_OK;
    }
    return od_fail(context, OD_TYPE_ERROR, "takes float32 and float64");
}

static od_status add_plan(od_context *context, const od_tensor *in, od_tensor *out) {
    (void)out; /* like the first input */
    if (!od_tensor_same_shape(&in[0], &in[1])) return od_fail(context, OD_VALUE_ERROR, "the shapes differ");
    if (!od_tensor_is(&in[0], OD_FLOAT, 64) || !od_tensor_is(&in[1], OD_FLOAT, 64))
        return od_fail(context, OD_TYPE_ERROR, "takes float64");
    return OD_OK;
}

static od_status add(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)context;
    const double *a = od_tensor_data(&in[0]), *b = od_tensor_data(&in[1]);
    double *y = od_tensor_data(out);
    for (int64_t i = 0, n = od_tensor_count(out); i < n; i++) y[i] = a[i] + b[i];
    return OD_OK;
}

static od_status extremes_plan(od_context *context, const od_tensor *in, od_tensor *out) {
    if (!od_tensor_is(in, OD_FLOAT, 64)) return od_fail(context, OD_TYPE_ERROR, "takes float64");
    if (od_tensor_count(in) == 0) return od_fail(context, OD_VALUE_ERROR, "there is no element");
    out[0].ndim = out[1].ndim = 0;
    return OD_OK;
}

static od_status extremes(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)context;
    const double *x = od_tensor_data(in);
    double low = x[0], high = x[0];
    EACH(in, offset, {
        if (x[offset] < low) low = x[offset];
        if (x[offset] > high) high = x[offset];
    });
    *(double *)od_tensor_data(&out[0]) = low;
    *(double *)od_tensor_data(&out[1]) = high;
    return OD_OK;
}

static od_status count_plan(od_context *context, const od_tensor *in, od_tensor *out) {
    (void)in;
    int64_t n = context->parameters[0].value.int64;
    out->dtype = (od_dtype){OD_INT, 64, 1};
    out->ndim = 1;
    out->shape[0] = n;
    return n < 0 ? od_fail(context, OD_VALUE_ERROR, "n is negative") : OD_OK;
}

static od_status count(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    int64_t *y = od_tensor_data(out);
    int64_t first = context->parameters[1].value.int64;
    for (int64_t i = 0; i < out->shape[0]; i++) y[i] = first + i;
    return OD_OK;
}

static od_status letters_plan(od_context *context, const od_tensor *in, od_tensor *out) {
    (void)in;
    out->dtype = (od_dtype){OD_UINT, 8, 1};
    out->ndim = 1;
    out->shape[0] = (int64_t)context->parameters[0].value.bytes.size;
    return OD_OK;
}

static od_status letters(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    if (out->shape[0]) memcpy(od_tensor_data(out), context->parameters[0].value.bytes.data, (size_t)out->shape[0]);
    return OD_OK;
}

static od_status one_int64(od_context *context, const od_tensor *in, od_tensor *out) {
    (void)context, (void)in;
    out->dtype = (od_dtype){OD_INT, 64, 1};
    out->ndim = 0;
    return OD_OK;
}

/* Fills scratch and pool memory with the context's id, waits, and finds it untouched: 1, else 0. */
static od_status alone(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    enum { WORDS = 5000 };
    uint64_t *scratch = od_arena_alloc(context->scratch, WORDS * sizeof(uint64_t));
    uint64_t *pool = od_pool_alloc(context, WORDS * sizeof(uint64_t));
    void *other = od_pool_alloc(context, 1);
    if (!scratch || !pool || !other) return od_fail(context, OD_MEMORY_ERROR, "no memory");
    int64_t ok = ((uintptr_t)scratch | (uintptr_t)pool | (uintptr_t)other) % 64 == 0;
    for (int i = 0; i < WORDS; i++) scratch[i] = pool[i] = context->id;
    od_pool_free(context, other);
    struct timespec wait = {0, context->parameters[0].value.int64 * 1000000};
    nanosleep(&wait, NULL);
    for (int i = 0; i < WORDS; i++) ok &= scratch[i] == context->id && pool[i] == context->id;
    *(int64_t *)od_tensor_data(out) = ok;
    return OD_OK;
}

static int n_inside;

/* How many calls are inside at the same moment, after a wait for others. */
static od_status together(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    __atomic_add_fetch(&n_inside, 1, __ATOMIC_SEQ_CST);
    struct timespec wait = {0, context->parameters[0].value.int64 * 1000000};
    nanosleep(&wait, NULL);
    *(int64_t *)od_tensor_data(out) = __atomic_load_n(&n_inside, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&n_inside, 1, __ATOMIC_SEQ_CST);
    return OD_OK;
}

static od_status id(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    *(int64_t *)od_tensor_data(out) = (int64_t)context->id;
    return context->stream == NULL && od_abi_version() >> 16 == OD_ABI_MAJOR ? OD_OK : OD_ERROR;
}

static od_arena *kept;
static int64_t *in_it;

/* Keeps its scratch arena beyond the call, with a value in it; what was kept before is released. */
static od_status keep(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    *(int64_t *)od_tensor_data(out) = in_it ? *in_it : -1;
    if (kept) od_arena_release(kept);
    kept = context->scratch;
    od_arena_retain(kept);
    in_it = od_arena_alloc(kept, sizeof *in_it);
    if (!in_it) return OD_MEMORY_ERROR;
    *in_it = context->parameters[0].value.int64;
    return OD_OK;
}

/* An arena of its own, used twice. */
static od_status arenas(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)in;
    od_arena *arena = od_arena_create(1000);
    if (!arena) return od_fail(context, OD_MEMORY_ERROR, "no arena");
    void *first = od_arena_alloc(arena, 500);
    int64_t ok = first && od_arena_alloc(arena, 500) != first && od_arena_alloc(arena, UINT64_MAX) == NULL;
    od_arena_reset(arena);
    ok &= od_arena_alloc(arena, 500) == first;
    od_arena_release(arena);
    *(int64_t *)od_tensor_data(out) = ok && od_arena_create(UINT64_MAX) == NULL;
    return OD_OK;
}

static od_status broken_plan(od_context *context, const od_tensor *in, od_tensor *out) {
    (void)in;
    static int64_t elsewhere[1] = {1};
    switch (context->parameters[0].value.int64) {
    case 0: out->ndim = -1; break;
    case 1: out->ndim = OD_MAX_NDIM + 1; break;
    case 2: out->dtype = (od_dtype){OD_FLOAT, 8, 1}; break;
    case 3: out->dtype.lanes = 4; break;
    case 4: out->shape = elsewhere; break;
    case 5: out->ndim = 1, out->shape[0] = -3; break;
    case 6: out->ndim = 2, out->shape[0] = out->shape[1] = (int64_t)1 << 40; break;
    case 7: return 77;
    case 8: return od_fail(context, OD_OK, "an error that says OK");
    case 9: return od_fail(context, OD_ERROR, "\xff no text");
    default: break;
    }
    return OD_OK;
}

static od_status nothing(od_context *context, const od_tensor *in, const od_tensor *out) {
    (void)context, (void)in, (void)out;
    return OD_OK;
}

#define INTEGER(parameter, default_) {parameter, OD_KIND_INT64, 0, {.int64 = default_}}
static const od_parameter factor[] = {{"factor", OD_KIND_FLOAT64, 0, {.float64 = 2.0}}};
static const od_parameter range[] = {{"n", OD_KIND_INT64, OD_REQUIRED, {0}}, INTEGER("first", 0)};
static const od_parameter text[] = {{"text", OD_KIND_BYTES, 0, {.bytes = {"default", 7}}}};
static const od_parameter wait[] = {INTEGER("ms", 0)};
static const od_parameter which[] = {INTEGER("which", -1)};

static const od_kernel kernels[] = {
    {"scale", "Multiplies by factor.", 1, 1, 0, 1, factor, NULL, scale},
    {"add", NULL, 2, 1, OD_DENSE, 0, NULL, add_plan, add},
    {"extremes", NULL, 1, 2, 0, 0, NULL, extremes_plan, extremes},
    {"count", NULL, 0, 1, 0, 2, range, count_plan, count},
    {"letters", NULL, 0, 1, 0, 1, text, letters_plan, letters},
    {"alone", NULL, 0, 1, 0, 1, wait, one_int64, alone},
    {"together", NULL, 0, 1, 0, 1, wait, one_int64, together},
    {"id", NULL, 0, 1, 0, 0, NULL, one_int64, id},
    {"keep", NULL, 0, 1, 0, 1, which, one_int64, keep},
    {"arenas", NULL, 0, 1, 0, 0, NULL, one_int64, arenas},
    {"broken", NULL, 0, 1, 0, 1, which, broken_plan, nothing},
};

#ifndef BROKEN
OD_LIBRARY(kernels)
#else
/* Tables that must be refused. */
const od_api *od_runtime_;
OD_EXPORT const od_library *od_library_v1(const od_api *api) {
    static od_kernel wrong[2];
    static od_library library = {OD_ABI_MAJOR, OD_ABI_MINOR, sizeof(od_kernel), 1, wrong};
    static od_parameter named[2];
    od_runtime_ = api;
    wrong[0] = wrong[1] = kernels[0];
    named[0] = named[1] = factor[0];
    switch (BROKEN) {
    case 0: return NULL;
    case 1: library.major = 2; break;
    case 2: library.kernel_size = 8; break;
    case 3: library.n_kernels = 0; break;
    case 4: wrong[0].run = NULL; break;
    case 5: wrong[0].name = NULL; break;
    case 6: wrong[0].name = "not one"; break;
    case 7: library.n_kernels = 2; break;
    case 8: wrong[0].n_outputs = 0; break;
    case 9: wrong[0].n_inputs = 0; break;
    case 10: wrong[0].parameters = NULL; break;
    case 11: wrong[0].parameters = named, wrong[0].n_parameters = 2; break;
    case 12: named[0].kind = 9, wrong[0].parameters = named; break;
    default: named[0].name = "out", wrong[0].parameters = named; break;
    }
    return &library;
}
#endif
