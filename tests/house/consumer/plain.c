#include <attend/c.h>

/* The same mean from C: equal keys weigh equally. */
float mean_from_c(void) {
  float q[8] = {0}, k[24] = {0}, v[3] = {1, 2, 3}, y[1] = {0};
  const int64_t one_query[] = {1, 8}, three_keys[] = {3, 8}, three_values[] = {3, 1}, one_value[] = {1, 1};
  const attend_array query = {sizeof query, q, ATTEND_FLOAT32, 2, one_query, NULL};
  const attend_array key = {sizeof key, k, ATTEND_FLOAT32, 2, three_keys, NULL};
  const attend_array value = {sizeof value, v, ATTEND_FLOAT32, 2, three_values, NULL};
  const attend_array out = {sizeof out, y, ATTEND_FLOAT32, 2, one_value, NULL};
  attend_results results = ATTEND_INIT(attend_results);
  results.out = &out;
  return attend_attention(&query, &key, &value, &results, NULL) == ATTEND_OK ? y[0] : -1;
}
