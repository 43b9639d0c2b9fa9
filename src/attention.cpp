// The life of a call: validate, plan, run. Everything else in src/ is one of these three.
#include "attend/attention.hpp"

#include "attend/varlen.hpp"
#include "route.hpp"
#include "run.hpp"
#include "validate.hpp"

namespace attend {

void attention(const array_view& q, const array_view& k, const array_view& v, const outputs& results, const options& how) {
  const detail::problem p = detail::validate(q, k, v, results, how);
  const detail::route r(p);
  detail::run(p, r, how);
}

std::optional<std::string> check(const array_view& q, const array_view& k, const array_view& v, const outputs& results,
                                 const options& how) {
  try {
    detail::validate(q, k, v, results, how);
    return std::nullopt;
  } catch (const argument_error& error) {
    return error.what();
  }
}

extents output_shape(const array_view& q, const array_view& k, const array_view& v, const options& how) {
  return detail::out_shape(detail::validate(q, k, v, {}, how), how.layout, q.shape.rank() == 2);
}

void attention_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                      const array_view& cu_seqlens_k, const outputs& results, const options& how) {
  const detail::problem p = detail::validate_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, results, how);
  const detail::route r(p);
  detail::run(p, r, how);
}

void attention_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                      const block_table& table, const outputs& results, const options& how) {
  detail::page_lists lists;
  const detail::problem p = detail::validate_varlen(q, k, v, cu_seqlens_q, table, results, how, lists);
  const detail::route r(p);
  detail::run(p, r, how);
}

std::optional<std::string> check_varlen(const array_view& q, const array_view& k, const array_view& v,
                                        const array_view& cu_seqlens_q, const array_view& cu_seqlens_k, const outputs& results,
                                        const options& how) {
  try {
    detail::validate_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, results, how);
    return std::nullopt;
  } catch (const argument_error& error) {
    return error.what();
  }
}

extents output_shape_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                            const array_view& cu_seqlens_k, const options& how) {
  return detail::out_shape(detail::validate_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, {}, how), how.layout, false);
}

extents output_shape_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                            const block_table& table, const options& how) {
  detail::page_lists lists;
  return detail::out_shape(detail::validate_varlen(q, k, v, cu_seqlens_q, table, {}, how, lists), how.layout, false);
}

}  // namespace attend
