#include <attend/attend.hpp>
#ifdef WITH_IO
#include <attend/io.hpp>
#endif

// Equal keys weigh equally, so that the result is the mean of the values 1, 2 and 3.
float mean_of_values() {
  attend::tensor<float> q({1, 8}), k({3, 8}, 1.0f), v({3, 1});
  for (int key = 0; key < 3; ++key) v(key, 0) = static_cast<float>(key + 1);
  return attend::attention(q, k, v)(0, 0);
}
