// The life of a call: validate, plan, run. Everything else in src/ is one of these three.
#include "attend/attention.hpp"

#include "route.hpp"
#include "run.hpp"
#include "validate.hpp"

namespace attend {

void attention(const array_view& q, const array_view& k, const array_view& v, const outputs& results, const options& how) {
  const detail::problem p = detail::validate(q, k, v, results, how);
  const detail::route r = detail::choose_route(p);
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

}  // namespace attend
