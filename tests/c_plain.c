/* The C ABI as a program of plain C99 meets it: attention, packed sequences, merging, rotary embeddings, plans, errors. */
#include <attend/c.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define EXPECT(condition)                                                                         \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ++failures;                                                                                 \
      printf("%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, attend_last_error()); \
    }                                                                                             \
  } while (0)

/* Row-major float32. */
static attend_array array_of(void* data, int32_t rank, const int64_t* shape) {
  attend_array array = ATTEND_INIT(attend_array);
  array.data = data;
  array.dtype = ATTEND_FLOAT32;
  array.rank = rank;
  array.shape = shape;
  return array;
}

static void fill(float* x, int count, unsigned seed) {
  int n;
  for (n = 0; n < count; ++n) {
    seed = seed * 1664525u + 1013904223u;
    x[n] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

enum { heads = 2, queries = 3, keys = 5, width = 4 };

/* The definition for one query, which sees keys [first_key, end_key) that are `steps` numbers apart. */
static double expected(const float* q, const float* k, const float* v, int steps, int end_key, int first_key, int column) {
  double sum = 0, mean = 0;
  int j, d;
  for (j = first_key; j < end_key; ++j) {
    double score = 0, weight;
    for (d = 0; d < width; ++d) score += (double)q[d] * (double)k[j * steps + d];
    weight = exp(score / sqrt((double)width));
    sum += weight;
    mean += weight * (double)v[j * steps + column];
  }
  return mean / sum;
}

static void test_attention(void) {
  float q[heads * queries * width], k[heads * keys * width], v[heads * keys * width], y[heads * queries * width];
  float lse[heads * queries];
  const int64_t q_shape[] = {heads, queries, width}, k_shape[] = {heads, keys, width}, lse_shape[] = {heads, queries};
  const attend_array query = array_of(q, 3, q_shape), key = array_of(k, 3, k_shape), value = array_of(v, 3, k_shape);
  const attend_array out = array_of(y, 3, q_shape), logs = array_of(lse, 2, lse_shape);
  attend_results results = ATTEND_INIT(attend_results);
  attend_options options = ATTEND_INIT(attend_options);
  int64_t shape[8];
  int32_t rank = 0;
  int h, i, c;

  fill(q, heads * queries * width, 1), fill(k, heads * keys * width, 2), fill(v, heads * keys * width, 3);
  results.out = &out;
  results.lse = &logs;
  options.causal = 1;
  options.anchor = ATTEND_LOWER_RIGHT;
  EXPECT(attend_check(&query, &key, &value, &results, &options) == ATTEND_OK);
  EXPECT(attend_attention(&query, &key, &value, &results, &options) == ATTEND_OK);
  for (h = 0; h < heads; ++h) {
    for (i = 0; i < queries; ++i) {
      for (c = 0; c < width; ++c) {
        const double truth = expected(q + (h * queries + i) * width, k + h * keys * width, v + h * keys * width, width,
                                      keys - queries + i + 1, 0, c);
        EXPECT(fabs((double)y[(h * queries + i) * width + c] - truth) < 1e-6);
      }
    }
  }
  EXPECT(attend_output_shape(&query, &key, &value, NULL, shape, &rank) == ATTEND_OK);
  EXPECT(rank == 3 && shape[0] == heads && shape[1] == queries && shape[2] == width);

  /* Errors: a status, a text that names the argument, nothing written. */
  memset(y, 7, sizeof y);
  options.anchor = ATTEND_NO_ANCHOR;
  EXPECT(attend_attention(&query, &key, &value, &results, &options) == ATTEND_ERROR_ARGUMENT);
  EXPECT(strncmp(attend_last_error(), "query_offset: expected ", 23) == 0);
  EXPECT(attend_attention(&query, NULL, &value, &results, NULL) == ATTEND_ERROR_ARGUMENT);
  EXPECT(strcmp(attend_last_error(), "k: expected an array, got none") == 0);
  {
    attend_array wrong = value;
    wrong.dtype = ATTEND_FLOAT64;
    EXPECT(attend_attention(&query, &key, &wrong, &results, NULL) == ATTEND_ERROR_TYPE);
    EXPECT(strncmp(attend_last_error(), "v: expected ", 12) == 0);
  }
  for (i = 0; i < (int)sizeof y; ++i) EXPECT(((const char*)y)[i] == 7);
}

static void test_packed_and_merged(void) {
  /* Tokens of heads of widths: two sequences of 1 and 2 queries over 2 and 3 keys. */
  float q[queries * heads * width], k[keys * heads * width], v[keys * heads * width], y[queries * heads * width];
  int64_t at_q[] = {0, 1, 3}, at_k[] = {0, 2, 5};
  const int64_t q_shape[] = {queries, heads, width}, k_shape[] = {keys, heads, width}, list[] = {3}, rows[] = {queries, heads};
  const attend_array query = array_of(q, 3, q_shape), key = array_of(k, 3, k_shape), value = array_of(v, 3, k_shape);
  const attend_array out = array_of(y, 3, q_shape);
  attend_array cu_q = array_of(at_q, 1, list), cu_k = array_of(at_k, 1, list);
  attend_results results = ATTEND_INIT(attend_results);
  int i, h, c;

  cu_q.dtype = cu_k.dtype = ATTEND_INT64;
  fill(q, queries * heads * width, 4), fill(k, keys * heads * width, 5), fill(v, keys * heads * width, 6);
  results.out = &out;
  EXPECT(attend_attention_varlen(&query, &key, &value, &cu_q, &cu_k, &results, NULL) == ATTEND_OK);
  for (i = 0; i < queries; ++i) {
    const int s = i < 1 ? 0 : 1;
    for (h = 0; h < heads; ++h) {
      for (c = 0; c < width; ++c) {
        const double truth = expected(q + (i * heads + h) * width, k + h * width, v + h * width, heads * width,
                                      (int)at_k[s + 1], (int)at_k[s], c);
        EXPECT(fabs((double)y[(i * heads + h) * width + c] - truth) < 1e-6);
      }
    }
  }
  at_k[1] = 7;
  EXPECT(attend_attention_varlen(&query, &key, &value, &cu_q, &cu_k, &results, NULL) == ATTEND_ERROR_ARGUMENT);
  EXPECT(strncmp(attend_last_error(), "cu_seqlens_k: expected ", 23) == 0);

  /* Two parts of which one weighs three times as much. */
  {
    float lse[2][queries * heads], all[queries * heads];
    const attend_array logs[] = {array_of(lse[0], 2, rows), array_of(lse[1], 2, rows)}, merged_lse = array_of(all, 2, rows);
    const attend_array parts[] = {array_of(q, 3, q_shape), array_of(k, 3, q_shape)};
    const attend_array* outs[2];
    const attend_array* lses[2];
    outs[0] = &parts[0], outs[1] = &parts[1], lses[0] = &logs[0], lses[1] = &logs[1];
    for (i = 0; i < queries * heads; ++i) lse[0][i] = 0.5f, lse[1][i] = 0.5f + (float)log(3.0);
    results.lse = &merged_lse;
    EXPECT(attend_merge(outs, lses, 2, &results) == ATTEND_OK);
    for (i = 0; i < queries * heads * width; ++i)
      EXPECT(fabs((double)y[i] - (0.25 * (double)q[i] + 0.75 * (double)k[i])) < 1e-6);
    for (i = 0; i < queries * heads; ++i) EXPECT(fabs((double)all[i] - (0.5 + log(4.0))) < 1e-6);
    EXPECT(attend_merge(outs, lses, 0, &results) == ATTEND_ERROR_ARGUMENT);
    EXPECT(attend_merge(NULL, lses, 2, &results) == ATTEND_ERROR_ARGUMENT);
    EXPECT(attend_merge(outs, lses, 2, NULL) == ATTEND_ERROR_ARGUMENT);
  }
}

static void test_rotary(void) {
  float x[] = {1, 0, 0, 1}, y[4];
  const int64_t shape[] = {1, 4}, first = 2;
  const double base = 100;
  const attend_array from = array_of(x, 2, shape), to = array_of(y, 2, shape);
  attend_integers positions = {NULL, NULL};
  attend_rotary options = ATTEND_INIT(attend_rotary);

  positions.value = &first;
  options.base = &base;
  options.interleaved = 1;
  EXPECT(attend_rotary_embedding(&from, &to, &positions, &options) == ATTEND_OK);
  EXPECT(fabs((double)y[0] - cos(2.0)) < 1e-7 && fabs((double)y[1] - sin(2.0)) < 1e-7);
  EXPECT(fabs((double)y[2] + sin(0.2)) < 1e-7 && fabs((double)y[3] - cos(0.2)) < 1e-7);
  EXPECT(attend_rotary_embedding(&from, &to, NULL, NULL) == ATTEND_ERROR_ARGUMENT);
  EXPECT(strncmp(attend_last_error(), "positions: expected ", 20) == 0);
}

static void test_plans_and_the_process(void) {
  const int64_t shape[] = {1, 8, 256, 64};
  const attend_array x = array_of(NULL, 4, shape);
  attend_facts facts = ATTEND_INIT(attend_facts);
  size_t length = 0;
  char* text;
  const int32_t threads = attend_num_threads();

  EXPECT(attend_plan_facts(&x, &x, &x, NULL, &facts) == ATTEND_OK);
  EXPECT(facts.heads == 8 && facts.queries == 256 && facts.width == 64 && facts.dtype == ATTEND_FLOAT32 && facts.flops > 0);
  EXPECT(strcmp(facts.kernel, "forward") == 0 && strlen(facts.isa) > 0 && attend_isa() != NULL);
  EXPECT(attend_plan_describe(&x, &x, &x, NULL, NULL, 0, &length) == ATTEND_OK && length > 0);
  text = malloc(length + 1);
  EXPECT(attend_plan_describe(&x, &x, &x, NULL, text, length, NULL) == ATTEND_ERROR_ARGUMENT);
  EXPECT(attend_plan_describe(&x, &x, &x, NULL, text, length + 1, NULL) == ATTEND_OK && strlen(text) == length);
  EXPECT(strstr(text, facts.reason) != NULL);
  free(text);

  EXPECT(attend_version()[0] == '0');
  EXPECT(threads >= 1);
  EXPECT(attend_set_num_threads(0) == ATTEND_ERROR_ARGUMENT && strncmp(attend_last_error(), "threads: ", 9) == 0);
  EXPECT(attend_set_num_threads(3) == ATTEND_OK && attend_num_threads() == 3);
  EXPECT(attend_set_num_threads(threads) == ATTEND_OK);
}

int main(void) {
  EXPECT(attend_last_error()[0] == '\0');
  test_attention();
  test_packed_and_merged();
  test_rotary();
  test_plans_and_the_process();
  if (failures == 0) puts("the C ABI is right");
  return failures == 0 ? 0 : 1;
}
