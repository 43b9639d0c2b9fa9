// A checked backward call: the forward call's problem, what its results were, and where gradients go.
#pragma once

#include "attend/backward.hpp"
#include "problem.hpp"

namespace attend::detail {

/// Gradients are placed as what they belong to, so one index serves both; along axes of size 1 they do not move, and what lies along
/// them is summed up.
struct gradient_operands {
  operand dq, dk, dv;
  operand dsinks;                       // read (head)
  operand dadditive;                    // read (column)
  operand drelative;                    // read (head, row offset, column offset), at the smallest offsets
  operand dscore[max_score_functions];  // of problem::score: of biases (batch..., head, query, key), of ALiBi (head)
};

struct gradient_problem {
  problem call;
  operand dout, out;
  operand lse, dlse;  // of softmax
  gradient_operands to;
};

/// Boundaries of packed sequences; neither is given where nothing is packed.
struct packed_boundaries {
  array_view queries = {}, keys = {};
};

/// Checks a backward call and describes it. Throws `argument_error`.
gradient_problem validate_backward(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                                   const packed_boundaries& packed, const gradients& results, const options& how);

/// The same of what goes in: all of a problem but its `out`, `lse` and `to`. For who makes results of its own.
gradient_problem validate_upstream(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                                   const packed_boundaries& packed, const options& how);

/// Where gradients of a checked call go; each has its input's shape.
gradient_operands place_gradients(const problem& p, const gradients& results, const options& how);

}  // namespace attend::detail
