// attend: exact attention for CPUs. Everything public, in reading order.
//
// ```cpp
// attend::tensor<float> q({1, 8, 128, 64}, 0.1f);
// attend::tensor<float> y = attend::attention(q, q, q, {.causal = true, .window = {63, 0}});
// ```
#pragma once

#include "attend/version.hpp"        // IWYU pragma: export
#include "attend/types.hpp"          // IWYU pragma: export
#include "attend/error.hpp"          // IWYU pragma: export
#include "attend/tensor.hpp"         // IWYU pragma: export
#include "attend/mask.hpp"           // IWYU pragma: export
#include "attend/compatibility.hpp"  // IWYU pragma: export
#include "attend/normalizer.hpp"     // IWYU pragma: export
#include "attend/score.hpp"          // IWYU pragma: export
#include "attend/options.hpp"        // IWYU pragma: export
#include "attend/attention.hpp"      // IWYU pragma: export
#include "attend/backward.hpp"       // IWYU pragma: export
#include "attend/varlen.hpp"         // IWYU pragma: export
#include "attend/merge.hpp"          // IWYU pragma: export
#include "attend/kv_cache.hpp"       // IWYU pragma: export
#include "attend/position.hpp"       // IWYU pragma: export
#include "attend/plan.hpp"           // IWYU pragma: export
#include "attend/reference.hpp"      // IWYU pragma: export
#include "attend/executor.hpp"       // IWYU pragma: export
#include "attend/isa.hpp"            // IWYU pragma: export
