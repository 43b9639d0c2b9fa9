// attend from C: plain structs, status codes, and handles for caches alone. C99 or newer, and C++. What each argument means is said beside its
// namesake in the C++ headers; here stands what C adds.
//
// ```c
// const int64_t rows[] = {8, 16, 64};                                                     // H, L, E
// static float q[8 * 16 * 64], k[8 * 16 * 64], v[8 * 16 * 64], y[8 * 16 * 64];
// const attend_array query = {sizeof query, q, ATTEND_FLOAT32, 3, rows, NULL};            // NULL strides: row-major
// const attend_array key = {sizeof key, k, ATTEND_FLOAT32, 3, rows, NULL};
// const attend_array value = {sizeof value, v, ATTEND_FLOAT32, 3, rows, NULL};
// const attend_array out = {sizeof out, y, ATTEND_FLOAT32, 3, rows, NULL};
//
// attend_options how = ATTEND_INIT(attend_options);
// attend_results results = ATTEND_INIT(attend_results);
// how.causal = 1;
// results.out = &out;
// const attend_status status = attend_attention(&query, &key, &value, &results, &how);
// if (status != ATTEND_OK) puts(attend_last_error());
// assert(status == ATTEND_OK);
// ```
//
// Every struct begins with its own size, which the caller sets (`ATTEND_INIT` does), and 0 is every member's default. A program
// that was compiled with an older header passes smaller structs, and what they lack has its default. A newer program's larger
// structs are accepted where all that this library does not know is 0. Sizes are multiples of 8 of at most 4096.
//
// Structs, and arrays that they point to, are read during the call and not kept. No exception leaves a function; any number of
// threads may call at once. A status other than ATTEND_OK leaves text for `attend_last_error`. Arguments are checked before
// anything is written.
#ifndef ATTEND_C_H
#define ATTEND_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTEND_API __attribute__((visibility("default")))
#else
#define ATTEND_API
#endif

/// Initialiser of a struct of this type: `attend_options how = ATTEND_INIT(attend_options);`
#ifdef __cplusplus
#define ATTEND_INIT(type) (attend_initialised<type>())
template <class Struct>
inline Struct attend_initialised() {
  Struct all = Struct();
  all.size = sizeof all;
  return all;
}

extern "C" {
#else
#define ATTEND_INIT(type) {.size = sizeof(type)}
#endif

typedef enum attend_status {
  ATTEND_OK = 0,
  ATTEND_ERROR_ARGUMENT = 1,  ///< a value or a shape is wrong
  ATTEND_ERROR_TYPE = 2,      ///< an element type is wrong
  ATTEND_ERROR_MEMORY = 3,    ///< out of memory; results are unspecified
  ATTEND_INTERRUPTED = 4,     ///< `options.interrupt` asked for it; results are unspecified
  ATTEND_ERROR_INTERNAL = 5   ///< a defect of the library
} attend_status;

// Values of members that are int32_t, so that a struct looks the same to every compiler.
enum attend_dtype {
  ATTEND_NO_DTYPE = 0,
  ATTEND_BOOL = 1,
  ATTEND_INT64 = 2,
  ATTEND_FLOAT32 = 3,
  ATTEND_FLOAT64 = 4,
  ATTEND_FLOAT16 = 5,  ///< IEEE 754 binary16
  ATTEND_BFLOAT16 = 6  ///< the upper half of a float
};
enum attend_layout { ATTEND_BHLD = 0, ATTEND_BLHD = 1 };
enum attend_anchor { ATTEND_NO_ANCHOR = 0, ATTEND_UPPER_LEFT = 1, ATTEND_LOWER_RIGHT = 2 };
enum attend_border { ATTEND_CLIP = 0, ATTEND_SHIFT = 1 };
enum attend_score_kind { ATTEND_SOFT_CAP = 1, ATTEND_BIAS = 2, ATTEND_ALIBI = 3 };
enum attend_compatibility {
  ATTEND_DOT = 0,
  ATTEND_COSINE = 1,
  ATTEND_GAUSSIAN = 2,
  ATTEND_L1 = 3,
  ATTEND_ADDITIVE = 4,
  ATTEND_NONE = 5
};
enum attend_normalizer {
  ATTEND_SOFTMAX = 0,
  ATTEND_MEAN = 1,
  ATTEND_SUM = 2,
  ATTEND_SIGMOID = 3,
  ATTEND_RELU2 = 4,
  ATTEND_ABS = 5
};
enum attend_stage { ATTEND_BIASED = 0, ATTEND_SCALED = 1, ATTEND_CAPPED = 2 };

/// An array of the caller's. `data` points at element (0, ..., 0) and is written to only where the array is a result.
typedef struct attend_array {
  size_t size;
  void* data;
  int32_t dtype;           ///< an attend_dtype; booleans are bytes that are 0 or 1
  int32_t rank;            ///< 0 to 8
  const int64_t* shape;    ///< `rank` sizes; may be NULL for rank 0
  const int64_t* strides;  ///< `rank` strides in elements, of any sign; NULL: row-major
} attend_array;

/// One integer for all batches, or an int64 array of one per batch; not given where both are NULL.
typedef struct attend_integers {
  const int64_t* value;
  const attend_array* values;
} attend_integers;

/// One element of a score list.
typedef struct attend_score {
  size_t size;
  int32_t kind;                 ///< an attend_score_kind
  int32_t reserved;             ///< 0
  double cap;                   ///< of ATTEND_SOFT_CAP
  const attend_array* numbers;  ///< of ATTEND_BIAS; of ATTEND_ALIBI the slopes, or NULL for the paper's
} attend_score;

/// Threads of the caller's: `parallel_for` calls `body(work, item)` once for every item in [0, count), at most `max_threads` at
/// a time, and returns when all have returned.
typedef struct attend_executor {
  size_t size;
  void (*parallel_for)(void* context, int64_t count, int32_t max_threads, void (*body)(void* work, int64_t item), void* work);
  void* context;
} attend_executor;

/// attend::options (attend/options.hpp). Pointers are NULL where something is not given; truth values are 0 or 1.
typedef struct attend_options {
  size_t size;
  int32_t causal;
  int32_t anchor;  ///< an attend_anchor: where query 0 stands, instead of `query_offset`
  const int64_t* window_left;
  const int64_t* window_right;
  attend_integers query_offset;
  attend_integers prefix;
  const attend_array* query_segments;
  const attend_array* key_segments;
  attend_integers key_lengths;
  const int64_t* grid;          ///< {rows, columns}
  const int64_t* neighborhood;  ///< the kernel, {rows, columns}
  const int64_t* dilation;      ///< {rows, columns}; NULL: {1, 1}
  int32_t border;               ///< an attend_border
  int32_t alibi;                ///< 1: the paper's slopes
  const attend_array* mask;
  const attend_array* bias;
  const attend_array* relative;
  const double* scale;
  const double* softcap;
  const attend_array* alibi_slopes;  ///< given slopes, instead of `alibi`
  const attend_array* sinks;
  const attend_score* const* score;  ///< `score_count` pointers
  int32_t score_count;
  int32_t compatibility;  ///< an attend_compatibility
  const double* sigma;    ///< of ATTEND_GAUSSIAN; NULL: 1
  const attend_array* additive;
  double dropout_p;
  const uint64_t* dropout_seed;
  int32_t normalizer;  ///< an attend_normalizer
  int32_t layout;      ///< an attend_layout
  int32_t reproducible;
  int32_t threads;
  const attend_executor* executor;
  int32_t (*interrupt)(void* context);  ///< anything but 0 stops the call
  void* interrupt_context;
} attend_options;

/// attend::outputs (attend/attention.hpp): where results go; NULL: not wanted.
typedef struct attend_results {
  size_t size;
  const attend_array* out;
  const attend_array* lse;
  const attend_array* weights;
  const attend_array* scores;
  int32_t stage;     ///< an attend_stage, of `scores`
  int32_t reserved;  ///< 0
} attend_results;

/// attend::backward_inputs (attend/backward.hpp): `dlse` may be NULL; beside any normalizer but softmax, `lse` and `dlse` are.
typedef struct attend_backward_inputs {
  size_t size;
  const attend_array* dout;
  const attend_array* out;
  const attend_array* lse;
  const attend_array* dlse;
} attend_backward_inputs;

/// attend::gradients (attend/backward.hpp): where they go; NULL: not wanted.
typedef struct attend_gradients {
  size_t size;
  const attend_array* dq;
  const attend_array* dk;
  const attend_array* dv;
  const attend_array* dbias;
  const attend_array* drelative;
  const attend_array* dalibi;
  const attend_array* dsinks;
  const attend_array* dadditive;
  const attend_array* const* dscore;  ///< `dscore_count` pointers, by place in the score list
  int32_t dscore_count;
  int32_t reserved;  ///< 0
} attend_gradients;

/// attend::rotary (attend/position.hpp).
typedef struct attend_rotary {
  size_t size;
  int32_t interleaved;
  int32_t layout;  ///< an attend_layout
  int64_t dimensions;
  const double* base;  ///< NULL: 10000
  const attend_array* cos;
  const attend_array* sin;
  int32_t threads;
  int32_t reserved;  ///< 0
} attend_rotary;

/// attend::plan_facts (attend/plan.hpp). Text belongs to the library and holds until this thread asks for facts again.
typedef struct attend_facts {
  size_t size;
  const char* operation;
  const char* kernel;
  const char* reason;
  const char* isa;
  int32_t compatibility;
  int32_t normalizer;
  int32_t dtype;
  int32_t split_keys;
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
  int64_t lanes, tile_keys, chunk_keys, lane_blocks, work_items;
  int64_t tiles_skipped, tiles_full, tiles_partial;
  int64_t scratch_bytes_per_thread, shared_scratch_bytes;
  double flops, bytes;
} attend_facts;

/// Text of this thread's last call that failed, "argument: expected ..., got ..."; "" before one did. Holds until the next one
/// does.
ATTEND_API const char* attend_last_error(void);

/// `options` may be NULL in every function: all defaults.
ATTEND_API attend_status attend_attention(const attend_array* q, const attend_array* k, const attend_array* v,
                                          const attend_results* results, const attend_options* options);

/// Packed sequences (attend/varlen.hpp): int64 boundaries (n + 1) of the queries and of the keys.
ATTEND_API attend_status attend_attention_varlen(const attend_array* q, const attend_array* k, const attend_array* v,
                                                 const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                                 const attend_results* results, const attend_options* options);

/// The same over pages of the caller's: k (pages, page size, heads, width), v alike, and an int64 block table (n, pages of the longest sequence)
/// (attend/varlen.hpp); `options->key_lengths` is needed.
ATTEND_API attend_status attend_attention_pages(const attend_array* q, const attend_array* k, const attend_array* v,
                                                const attend_array* cu_seqlens_q, const attend_array* block_table,
                                                const attend_results* results, const attend_options* options);

/// What the calls above but the last would refuse, without computing. Here `results` may be NULL.
ATTEND_API attend_status attend_check(const attend_array* q, const attend_array* k, const attend_array* v,
                                      const attend_results* results, const attend_options* options);
ATTEND_API attend_status attend_check_varlen(const attend_array* q, const attend_array* k, const attend_array* v,
                                             const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                             const attend_results* results, const attend_options* options);

/// Gradients (attend/backward.hpp), also over packed sequences.
ATTEND_API attend_status attend_attention_backward(const attend_backward_inputs* of, const attend_array* q,
                                                   const attend_array* k, const attend_array* v,
                                                   const attend_gradients* results, const attend_options* options);
ATTEND_API attend_status attend_attention_varlen_backward(const attend_backward_inputs* of, const attend_array* q,
                                                          const attend_array* k, const attend_array* v,
                                                          const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                                          const attend_gradients* results, const attend_options* options);

/// Shape of `out`: `rank` sizes into `shape`, which has room for 8.
ATTEND_API attend_status attend_output_shape(const attend_array* q, const attend_array* k, const attend_array* v,
                                             const attend_options* options, int64_t* shape, int32_t* rank);
ATTEND_API attend_status attend_output_shape_varlen(const attend_array* q, const attend_array* k, const attend_array* v,
                                                    const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                                    const attend_options* options, int64_t* shape, int32_t* rank);

/// Merges `count` partial results (attend/merge.hpp): as many pointers to arrays in `outs` as in `lses`.
ATTEND_API attend_status attend_merge(const attend_array* const* outs, const attend_array* const* lses, size_t count,
                                      const attend_results* results);

/// Rotary embeddings (attend/position.hpp). `positions` is the first position or an array of one per token; NULL, or neither
/// given: cosines and sines are by token.
ATTEND_API attend_status attend_rotary_embedding(const attend_array* x, const attend_array* out,
                                                 const attend_integers* positions, const attend_rotary* options);

/// Caches (attend/kv_cache.hpp). A function that makes one writes its handle, which `destroy` frees; a null handle is nothing to free. Calls that
/// take a handle that is not `const` need it to themselves.
typedef enum attend_quantization { ATTEND_NOT_QUANTIZED = 0, ATTEND_INT8 = 1, ATTEND_INT4 = 2 } attend_quantization;

typedef struct attend_cache attend_cache;

typedef struct attend_cache_sizes {
  size_t size;
  int64_t batch, kv_heads, capacity, dim;
  const int64_t* value_dim;     ///< NULL: dim
  const int64_t* window;        ///< NULL: not a ring
  const attend_rotary* rotary;  ///< NULL: rows stay as they are. Its arrays are kept, its layout and threads not used
  int32_t dtype;                ///< an attend_dtype
  int32_t quantized_keys;       ///< an attend_quantization
  int32_t quantized_values;     ///< an attend_quantization
  int32_t reserved;             ///< 0
} attend_cache_sizes;

ATTEND_API attend_status attend_cache_create(const attend_cache_sizes* sizes, attend_cache** cache);
ATTEND_API void attend_cache_destroy(attend_cache* cache);
/// `lengths`: how many of the new tokens each sequence takes; NULL: all.
ATTEND_API attend_status attend_cache_append(attend_cache* cache, const attend_array* k, const attend_array* v,
                                             const attend_integers* lengths);
ATTEND_API attend_status attend_cache_truncate(attend_cache* cache, const attend_integers* lengths);
ATTEND_API attend_status attend_cache_reset(attend_cache* cache);
/// One number per sequence into `lengths`.
ATTEND_API attend_status attend_cache_lengths(const attend_cache* cache, int64_t* lengths);
ATTEND_API attend_status attend_decode(const attend_array* q, attend_cache* cache, const attend_results* results,
                                       const attend_options* options);

typedef struct attend_paged_cache attend_paged_cache;

typedef struct attend_paged_cache_sizes {
  size_t size;
  int64_t pages, page_size, kv_heads, dim;
  const int64_t* value_dim;     ///< NULL: dim
  const attend_rotary* rotary;  ///< NULL: rows stay as they are. Its arrays are kept, its layout and threads not used
  int32_t dtype;                ///< an attend_dtype
  int32_t quantized_keys;       ///< an attend_quantization
  int32_t quantized_values;     ///< an attend_quantization
  int32_t reserved;             ///< 0
} attend_paged_cache_sizes;

ATTEND_API attend_status attend_paged_cache_create(const attend_paged_cache_sizes* sizes, attend_paged_cache** cache);
ATTEND_API void attend_paged_cache_destroy(attend_paged_cache* cache);
ATTEND_API attend_status attend_paged_cache_new_sequence(attend_paged_cache* cache, int64_t* sequence);
ATTEND_API attend_status attend_paged_cache_fork(attend_paged_cache* cache, int64_t sequence, int64_t* fork);
ATTEND_API attend_status attend_paged_cache_free(attend_paged_cache* cache, int64_t sequence);
ATTEND_API attend_status attend_paged_cache_append(attend_paged_cache* cache, int64_t sequence, const attend_array* k,
                                                   const attend_array* v);
ATTEND_API attend_status attend_paged_cache_truncate(attend_paged_cache* cache, int64_t sequence, int64_t length);
ATTEND_API attend_status attend_paged_cache_length(const attend_paged_cache* cache, int64_t sequence, int64_t* length);
ATTEND_API attend_status attend_paged_cache_free_pages(const attend_paged_cache* cache, int64_t* pages);
/// `count` sequences, one for each of q's first axis.
ATTEND_API attend_status attend_decode_paged(const attend_array* q, const attend_paged_cache* cache, const int64_t* sequences,
                                             size_t count, const attend_results* results, const attend_options* options);

/// What would run, in numbers. Of the arrays, dtypes and shapes are read alone. The caller sets `facts->size`; members that
/// this library does not know become 0.
ATTEND_API attend_status attend_plan_facts(const attend_array* q, const attend_array* k, const attend_array* v,
                                           const attend_options* options, attend_facts* facts);

/// The same as text, one fact a line, with a 0 at its end. `length`, which may be NULL, becomes the number of characters
/// without it; a `capacity` of 0 asks for that alone. A buffer that is too small is an error, and nothing is written to it.
ATTEND_API attend_status attend_plan_describe(const attend_array* q, const attend_array* k, const attend_array* v,
                                              const attend_options* options, char* buffer, size_t capacity, size_t* length);

/// "major.minor.patch" of the library.
ATTEND_API const char* attend_version(void);

/// Name of the best instruction set that machine, build and `ATTEND_ISA` have; NULL where `ATTEND_ISA` is wrong.
ATTEND_API const char* attend_isa(void);

/// Threads of calls that name no number; 0 where `ATTEND_NUM_THREADS` is wrong.
ATTEND_API int32_t attend_num_threads(void);
ATTEND_API attend_status attend_set_num_threads(int32_t threads);

#ifdef __cplusplus
}
#endif

#endif  // ATTEND_C_H
