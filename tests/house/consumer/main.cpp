#include <attend/attend.hpp>

#include <iostream>

float mean_of_values();
extern "C" float mean_from_c(void);

int main() {
  attend::tensor<float> q({2, 4, 8}, 0.5f);
  const attend::tensor<float> y = attend::attention(q, q, q, {.causal = true});
  const bool right = y(1, 3, 7) == 0.5f && mean_of_values() == 2.0f && mean_from_c() == 2.0f;
  std::cout << "attend " << attend::version() << (right ? ": right\n" : ": wrong\n");
  return right ? 0 : 1;
}
