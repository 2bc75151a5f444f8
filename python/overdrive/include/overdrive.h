/* Kernels for Overdrive in a shared library: the C ABI, version 1.
 *
 * A library exports one function, od_library_v1, which returns the table of its kernels; the macro OD_LIBRARY defines
 * it. From Python:
 *
 *     lib = overdrive.kernel.load_library("./libkernels.so")
 *     y = lib.scale(x, factor=2.0)
 *
 * Tensors.   A descriptor is valid during the call. Its first 48 bytes are DLPack's DLTensor. Strides count elements.
 * Outputs.   `plan` says what each output looks like; the run time allocates it (64-byte aligned, row-major), or checks
 *            what the caller gave as `out=`, and `run` fills it in. Without a plan, outputs are like the first input.
 * Errors.    A function returns OD_OK, or od_fail(context, OD_VALUE_ERROR, "what is wrong"): Python gets the exception.
 *            Nothing may unwind or jump out of a kernel.
 * Threads.   Kernels run without the GIL, several at once, each with a context of its own, which only the thread of the
 *            call passes to functions here. A kernel may use threads of its own if they have ended, or touch nothing of
 *            the call, when it returns.
 * Memory.    Scratch memory of the context goes at the end of the call, unless the arena was retained.
 * Versions.  The run time refuses libraries of another major version. Minor versions add at the end of structs.
 *
 * The same in Rust: the crate overdrive-abi.
 */
#ifndef OVERDRIVE_H
#define OVERDRIVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OD_ABI_MAJOR 1
#define OD_ABI_MINOR 0
#define OD_MAX_NDIM 64

typedef int32_t od_status;
#define OD_OK 0
#define OD_TYPE_ERROR (-1)   /* TypeError */
#define OD_VALUE_ERROR (-2)  /* ValueError */
#define OD_MEMORY_ERROR (-3) /* MemoryError */
#define OD_ERROR (-4)        /* RuntimeError, as is any other status but OD_OK */

/* Flag of od_tensor: must not be written. */
#define OD_READ_ONLY 1u
/* Flag of od_kernel: tensors are row-major without gaps; others are refused before the call. */
#define OD_DENSE 1u
/* Flag of od_parameter: has no default. */
#define OD_REQUIRED 1u

/* DLPack's: the CPU is (1, 0). */
typedef struct {
    int32_t device_type;
    int32_t device_id;
} od_device;

/* DLPack's codes. */
#define OD_INT 0
#define OD_UINT 1
#define OD_FLOAT 2
#define OD_BFLOAT 4
#define OD_COMPLEX 5
#define OD_BOOL 6

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* 1 */
} od_dtype;

typedef struct {
    void *data; /* first element; may be null when there is none */
    od_device device;
    int32_t ndim;
    od_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements, never null */
    uint64_t byte_offset; /* 0 */
    /* Behind DLPack's part: */
    uint64_t flags;
    uint32_t topology;     /* which memory of the machine; 0 where there is one */
    uint32_t quantisation; /* schema of coded elements, 0: plain */
    const void *quantisation_parameters; /* never change */
    uint64_t quantisation_size;          /* bytes */
} od_tensor;

#define OD_KIND_INT64 0u
#define OD_KIND_FLOAT64 1u
#define OD_KIND_BYTES 2u /* bytes, or text in UTF-8 */

typedef struct {
    const char *data;
    uint64_t size;
} od_bytes;

/* As a kernel declares it, with its default; as a context carries it, with its value. */
typedef struct {
    const char *name;
    uint32_t kind;
    uint32_t flags;
    union {
        int64_t int64;
        double float64;
        od_bytes bytes;
    } value;
} od_parameter;

typedef struct od_arena od_arena;
typedef struct od_api od_api;

typedef struct {
    uint64_t id;       /* different for every call in the process */
    void *stream;      /* the device's; null on the CPU */
    od_arena *scratch; /* empty at the start of the call */
    const od_parameter *parameters; /* in the kernel's order */
    uint64_t n_parameters;
    const od_api *api;
} od_context;

struct od_api {
    uint32_t size; /* bytes of this struct */
    uint32_t major;
    uint32_t minor;
    uint32_t reserved;
    od_status (*fail)(od_context *, od_status, const char *message);
    void *(*pool_alloc)(od_context *, uint64_t bytes);
    void (*pool_free)(od_context *, void *);
    od_arena *(*arena_create)(uint64_t bytes);
    void (*arena_retain)(od_arena *);
    void (*arena_release)(od_arena *);
    void *(*arena_alloc)(od_arena *, uint64_t bytes);
    void (*arena_reset)(od_arena *);
};

typedef od_status (*od_plan)(od_context *, const od_tensor *inputs, od_tensor *outputs);
typedef od_status (*od_run)(od_context *, const od_tensor *inputs, const od_tensor *outputs);

typedef struct {
    const char *name; /* a Python identifier */
    const char *doc;  /* or null */
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t flags;
    uint32_t n_parameters;
    const od_parameter *parameters;
    od_plan plan; /* or null: outputs are like the first input */
    od_run run;
} od_kernel;

typedef struct {
    uint32_t major;
    uint32_t minor;
    uint32_t kernel_size; /* sizeof(od_kernel) */
    uint32_t n_kernels;
    const od_kernel *kernels;
} od_library;

#if defined(_WIN32)
#define OD_EXPORT __declspec(dllexport)
#define OD_HIDDEN
#else
#define OD_EXPORT __attribute__((visibility("default")))
#define OD_HIDDEN __attribute__((visibility("hidden")))
#endif

/* The functions of the run time, since the library was loaded; the macro OD_LIBRARY defines it. */
extern OD_HIDDEN const od_api *od_runtime_;

/* Once in a library, with its array of kernels: OD_LIBRARY(kernels) */
#define OD_LIBRARY(table)                                                                 \
    OD_HIDDEN const od_api *od_runtime_;                                                  \
    OD_EXPORT const od_library *od_library_v1(const od_api *api);                         \
    const od_library *od_library_v1(const od_api *api) {                                  \
        static const od_library library = {OD_ABI_MAJOR, OD_ABI_MINOR, sizeof(od_kernel), \
                                           sizeof(table) / sizeof((table)[0]), (table)};  \
        od_runtime_ = api;                                                                \
        return &library;                                                                  \
    }

/* Version of the run time: major in the upper half. */
static inline uint32_t od_abi_version(void) { return od_runtime_->major << 16 | od_runtime_->minor; }

/* Sets the message of an error, which is copied, and returns the status. */
static inline od_status od_fail(od_context *context, od_status status, const char *message) {
    return od_runtime_->fail(context, status, message);
}

/* Memory of the context's pool, aligned to 64 bytes, or null. Freed at the end of the call if not before. */
static inline void *od_pool_alloc(od_context *context, uint64_t bytes) { return od_runtime_->pool_alloc(context, bytes); }
static inline void od_pool_free(od_context *context, void *memory) { od_runtime_->pool_free(context, memory); }

/* A new arena, held once, or null. It belongs to one thread at a time. */
static inline od_arena *od_arena_create(uint64_t bytes) { return od_runtime_->arena_create(bytes); }
static inline void od_arena_retain(od_arena *arena) { od_runtime_->arena_retain(arena); }
static inline void od_arena_release(od_arena *arena) { od_runtime_->arena_release(arena); }
/* Memory aligned to 64 bytes, until the arena is reset or its last holder releases it; or null. */
static inline void *od_arena_alloc(od_arena *arena, uint64_t bytes) { return od_runtime_->arena_alloc(arena, bytes); }
static inline void od_arena_reset(od_arena *arena) { od_runtime_->arena_reset(arena); }

/* Address of element 0. */
static inline void *od_tensor_data(const od_tensor *t) { return (char *)t->data + t->byte_offset; }
/* Whether elements are of this type: od_tensor_is(t, OD_FLOAT, 32) */
static inline int od_tensor_is(const od_tensor *t, int code, int bits) {
    return t->dtype.code == code && t->dtype.bits == bits && t->dtype.lanes == 1 && t->quantisation == 0;
}
/* Number of elements. */
static inline int64_t od_tensor_count(const od_tensor *t) {
    int64_t n = 1;
    for (int32_t axis = 0; axis < t->ndim; axis++) n *= t->shape[axis];
    return n;
}
/* Whether the last axis is dense and the others follow. */
static inline int od_tensor_is_dense(const od_tensor *t) {
    int64_t expected = 1;
    for (int32_t axis = t->ndim - 1; axis >= 0; axis--) {
        if (t->shape[axis] == 0) return 1;
        if (t->shape[axis] != 1 && t->strides[axis] != expected) {
            /* An axis of length 0 further out makes strides meaningless. */
            for (int32_t outer = axis - 1; outer >= 0; outer--)
                if (t->shape[outer] == 0) return 1;
            return 0;
        }
        expected *= t->shape[axis];
    }
    return 1;
}
/* Whether two tensors have the same shape. */
static inline int od_tensor_same_shape(const od_tensor *a, const od_tensor *b) {
    if (a->ndim != b->ndim) return 0;
    for (int32_t axis = 0; axis < a->ndim; axis++)
        if (a->shape[axis] != b->shape[axis]) return 0;
    return 1;
}

#if defined(__cplusplus)
#define OD_ASSERT(condition) static_assert(condition, #condition);
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define OD_ASSERT(condition) _Static_assert(condition, #condition);
#else
#define OD_ASSERT(condition)
#endif
/* The Rust crate asserts the same. */
OD_ASSERT(sizeof(od_tensor) == 80)
OD_ASSERT(offsetof(od_tensor, byte_offset) == 40)
OD_ASSERT(offsetof(od_tensor, flags) == 48)
OD_ASSERT(offsetof(od_tensor, topology) == 56)
OD_ASSERT(offsetof(od_tensor, quantisation) == 60)
OD_ASSERT(offsetof(od_tensor, quantisation_parameters) == 64)
OD_ASSERT(sizeof(od_parameter) == 32)
OD_ASSERT(offsetof(od_parameter, value) == 16)
OD_ASSERT(sizeof(od_context) == 48)
OD_ASSERT(offsetof(od_context, scratch) == 16)
OD_ASSERT(offsetof(od_context, api) == 40)
OD_ASSERT(sizeof(od_api) == 80)
OD_ASSERT(offsetof(od_api, fail) == 16)
OD_ASSERT(sizeof(od_kernel) == 56)
OD_ASSERT(offsetof(od_kernel, parameters) == 32)
OD_ASSERT(offsetof(od_kernel, run) == 48)
OD_ASSERT(sizeof(od_library) == 24)

#ifdef __cplusplus
}
#endif
#endif
