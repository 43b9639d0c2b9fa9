// Gradients of dense biases.
#pragma once

#include "backward_call.hpp"

namespace attend::detail {

/// The gradient of the bias that is score function `number`, where it is wanted.
void differentiate_bias(const backward_call& call, work_items& items, int number);

}  // namespace attend::detail
