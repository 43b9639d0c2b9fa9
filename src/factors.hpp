// What queries, keys and scores are multiplied by, so that a score is `scale * f(q, k)` and stays in the type's range.
#pragma once

#include "problem.hpp"

namespace attend::detail {

/// Of a job; see block_job.
struct factors {
  double query = 1, key = 1, score = 1;
};

factors factors_of(const problem& p) noexcept;

}  // namespace attend::detail
