// The life of a backward call: validate and run, as in attention.cpp.
#include "attend/backward.hpp"

#include "elements.hpp"
#include "gradient_problem.hpp"
#include "rows.hpp"
#include "run_backward.hpp"

namespace attend {
namespace {

void clear(const mutable_array_view& x) {
  if (!x) return;
  const std::int64_t count = x.shape.count();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t offset = detail::offset_at(x.shape, x.strides, x.shape.rank(), i);
    detail::store_number(static_cast<char*>(x.data) + offset * size_of(x.type), x.type, 0);
  }
}

/// Of a call without rows: whatever they are by is part of no result.
void clear(const gradients& all) {
  for (const mutable_array_view* x :
       {&all.dq, &all.dk, &all.dv, &all.dbias, &all.drelative, &all.dalibi, &all.dsinks, &all.dadditive})
    clear(*x);
  for (const mutable_array_view& x : all.dscore) clear(x);
}

void differentiate(const detail::gradient_problem& g, const gradients& results, const options& how) {
  if (g.call.heads == 0 || g.call.batch.count == 0) {
    clear(results);
  } else {
    detail::run_backward(g, how);
  }
}

template <class Validate>
std::optional<std::string> problem_of(const Validate& validate) {
  try {
    validate();
    return std::nullopt;
  } catch (const argument_error& error) {
    return error.what();
  }
}

}  // namespace

void attention_backward(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                        const gradients& results, const options& how) {
  differentiate(detail::validate_backward(of, q, k, v, {}, results, how), results, how);
}

std::optional<std::string> check_backward(const backward_inputs& of, const array_view& q, const array_view& k,
                                          const array_view& v, const gradients& results, const options& how) {
  return problem_of([&] { detail::validate_backward(of, q, k, v, {}, results, how); });
}

void attention_varlen_backward(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                               const array_view& cu_seqlens_q, const array_view& cu_seqlens_k, const gradients& results,
                               const options& how) {
  differentiate(detail::validate_backward(of, q, k, v, {cu_seqlens_q, cu_seqlens_k}, results, how), results, how);
}

std::optional<std::string> check_varlen_backward(const backward_inputs& of, const array_view& q, const array_view& k,
                                                 const array_view& v, const array_view& cu_seqlens_q,
                                                 const array_view& cu_seqlens_k, const gradients& results, const options& how) {
  return problem_of([&] { detail::validate_backward(of, q, k, v, {cu_seqlens_q, cu_seqlens_k}, results, how); });
}

}  // namespace attend
