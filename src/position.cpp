// Rotary embeddings. Work is spread over tokens; each token's cosines and sines are made once for all of its heads, and for all
// batches that have it at the same position.
//
// The angle p / base^(2m/n) of a float64 frequency would be wrong by p times its rounding, 2e-7 at position 2^31. Frequencies
// are therefore pairs of float64 (high + low), and what the product with the position loses is carried into the cosine and
// sine.
#include "attend/position.hpp"

#include <cmath>
#include <string>
#include <tuple>

#include "checks.hpp"
#include "overlap.hpp"
#include "rows.hpp"
#include "scratch.hpp"

namespace attend {
namespace {

using detail::load;
using detail::refuse;
using detail::refuse_type;
using detail::store;
using std::to_string;

constexpr std::int64_t farthest = std::int64_t{1} << 40;
constexpr double usual_base = rotary{}.base;

/// high + low, low being less than half a unit in the last place of high.
struct wide {
  double high = 0, low = 0;
};

wide operator*(const wide& x, const wide& y) noexcept {
  const double product = x.high * y.high;
  const double rest = std::fma(x.high, y.high, -product) + (x.high * y.low + x.low * y.high);
  const double sum = product + rest;
  return {sum, rest - (sum - product)};
}

wide power(wide x, std::int64_t exponent) noexcept {
  wide result{1, 0};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = result * x;
    if (exponent > 1) x = x * x;
  }
  return result;
}

/// base^(-m / pairs) for m from 0 on: powers of the root, which one step of Newton's takes past float64.
void fill_frequencies(double base, std::int64_t pairs, wide* frequencies) noexcept {
  const double inverse = 1 / base;
  const wide target{inverse, std::fma(-inverse, base, 1.0) / base};
  const double guess = std::pow(base, -1.0 / static_cast<double>(pairs));
  const wide reached = power({guess, 0}, pairs);
  const double miss = ((target.high - reached.high) + (target.low - reached.low)) / reached.high;
  const wide root{guess, guess * miss / static_cast<double>(pairs)};
  wide power_of_root{1, 0};
  for (std::int64_t m = 0; m < pairs; ++m) {
    frequencies[m] = power_of_root;
    power_of_root = power_of_root * root;
  }
}

struct turn {
  double cos, sin;
};

turn turn_at(double position, const wide& frequency) noexcept {
  const double angle = position * frequency.high;
  const double rest = std::fma(position, frequency.high, -angle) + position * frequency.low;  // at most 2^-13
  const double c = std::cos(angle), s = std::sin(angle);
  const double sin_rest = rest - rest * rest * rest / 6, cos_loss = rest * rest / 2;
  return {c - (s * sin_rest + c * cos_loss), s + (c * sin_rest - s * cos_loss)};
}

/// An array along the batch axes and up to two axes of its own; broadcast axes have step 0.
struct placed {
  const char* data = nullptr;
  dtype type = dtype::none;
  extents batch;
  std::int64_t row = 0, column = 0;

  explicit operator bool() const noexcept { return type != dtype::none; }
  const char* at(const extents& sizes, std::int64_t b, std::int64_t index) const noexcept {
    return data + (detail::offset_at(sizes, batch, sizes.rank(), b) + index * row) * size_of(type);
  }
};

/// A checked call.
struct turning {
  dtype type = dtype::none;
  extents batch;
  std::int64_t sequences = 1, heads = 0, length = 0, width = 0, pairs = 0;
  bool interleaved = false, in_place = false, rows_by_position = false;
  placed x, out;  // a row is a token of head 0
  char* written = nullptr;
  std::int64_t x_head = 0, out_head = 0;
  placed positions;  // not given: from `first` on
  std::int64_t first = 0;
  double base = usual_base;
  placed cos, sin;  // not given: by base

  double cost_of_token() const noexcept {
    return static_cast<double>(heads) * static_cast<double>(width) + static_cast<double>(pairs) * (cos ? 2 : 40);
  }
};

placed place_tokens(const array_view& x, const detail::axes& a) {
  placed p{static_cast<const char*>(x.data), x.type, {}, 0, 0};
  for (int axis = 0; axis < a.batch_axes(); ++axis) p.batch.push_back(a.strides[axis]);
  p.row = a.strides[a.shape.rank() - 2];
  p.column = a.strides[a.shape.rank() - 1];
  return p;
}

/// An array whose last axes are `own` and whose others broadcast to the batch axes.
placed place_beside(const char* name, const array_view& x, const extents& batch, const extents& own) {
  const int lead = x.shape.rank() - own.rank(), shift = batch.rank() - lead;
  bool fits = lead >= 0 && shift >= 0;
  for (int axis = 0; fits && axis < x.shape.rank(); ++axis)
    fits = axis < lead ? x.shape[axis] == 1 || x.shape[axis] == batch[shift + axis] : x.shape[axis] == own[axis - lead];
  if (!fits) {
    extents full = batch;
    for (int axis = 0; axis < own.rank(); ++axis) full.push_back(own[axis]);
    refuse(name, "shape " + own.to_string() + (batch.rank() > 0 ? ", or one that broadcasts to " + full.to_string() : ""),
           x.shape.to_string());
  }
  detail::check_memory(name, x);
  placed p{static_cast<const char*>(x.data), x.type, {}, 0, 0};
  for (int axis = 0; axis < batch.rank(); ++axis)
    p.batch.push_back(axis < shift || x.shape[axis - shift] == 1 ? 0 : x.strides[axis - shift]);
  p.row = x.strides[lead];
  p.column = own.rank() > 1 ? x.strides[lead + 1] : 0;
  return p;
}

void check_out(const array_view& x, const mutable_array_view& out, const rotary& how, const token_positions& positions) {
  if (!out) refuse("out", "an array", "none");
  if (out.type != x.type) refuse_type("out", std::string(name_of(x.type)), out.type);
  if (out.shape != x.shape) refuse("out", "shape " + x.shape.to_string(), out.shape.to_string());
  detail::check_places("out", out);
  if (x.shape.count() == 0) return;
  const bool same = out.data == x.data && out.strides == x.strides;
  if (!same && detail::overlaps(out, x)) refuse("out", "the view of x, or memory apart from it", "an array that overlaps x");
  const array_view* const beside[] = {&positions.values(), &how.cos, &how.sin};
  const char* const names[] = {"positions", "cos", "sin"};
  for (int i = 0; i < 3; ++i) {
    if (*beside[i] && detail::overlaps(out, *beside[i]))
      refuse("out", "memory apart from every input but x", std::string("an array that overlaps ") + names[i]);
  }
}

void check_angles(turning& p, const rotary& how) {
  if (!(how.base >= 1) || !std::isfinite(how.base)) refuse("base", "a finite number of at least 1", detail::text_of(how.base));
  p.base = how.base;
  if (!how.cos && !how.sin) return;
  if (how.base != usual_base) refuse("base", "no cosines and sines beside it", "both");
  if (!how.cos || !how.sin) refuse(how.cos ? "sin" : "cos", "an array beside that of the other", "none");
  for (const auto& [name, given, to] : {std::tuple{"cos", &how.cos, &p.cos}, std::tuple{"sin", &how.sin, &p.sin}}) {
    if (given->type != p.type && given->type != dtype::f32) refuse_type(name, detail::added_types(p.type), given->type);
    if (!p.rows_by_position) {
      *to = place_beside(name, *given, p.batch, {p.length, p.pairs});
    } else {
      if (given->shape.rank() != 2 || given->shape[1] != p.pairs || given->shape[0] != how.cos.shape[0])
        refuse(name, "shape (positions, " + to_string(p.pairs) + ")" + (given == &how.cos ? "" : ", that of cos"),
               given->shape.to_string());
      *to = place_beside(name, *given, {}, given->shape);
      for (int axis = 0; axis < p.batch.rank(); ++axis) to->batch.push_back(0);
    }
  }
}

void check_positions(turning& p, const token_positions& positions, const rotary& how) {
  const std::int64_t low = p.cos ? 0 : -farthest, high = p.cos ? how.cos.shape[0] - 1 : farthest;
  const auto check = [&](std::int64_t position, const char* where) {
    if (position < low || position > high)
      refuse("positions", "values from " + to_string(low) + " to " + to_string(high), to_string(position) + where);
  };
  if (positions.first()) {
    p.first = *positions.first();
    if (p.length == 0) return;
    check(p.first, "");
    if (p.length - 1 > high - p.first)
      refuse("positions", "values from " + to_string(low) + " to " + to_string(high),
             to_string(p.length) + " tokens from " + to_string(p.first) + " on");
    return;
  }
  const array_view& values = positions.values();
  if (values.type != dtype::i64) refuse_type("positions", "int64", values.type);
  p.positions = place_beside("positions", values, p.batch, {p.length});
  const std::int64_t count = values.shape.count();
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t offset = detail::offset_at(values.shape, values.strides, values.shape.rank(), n);
    check(load<std::int64_t>(p.positions.data + offset * size_of(dtype::i64)), " among them");
  }
}

turning check_rotary(const array_view& x, const mutable_array_view& out, const token_positions& positions, const rotary& how) {
  detail::check_input("x", x, x.type, detail::inputs::data);
  if (how.layout != layout::bhld && how.layout != layout::blhd)
    refuse("layout", "bhld or blhd", to_string(static_cast<int>(how.layout)));
  const detail::axes a = detail::heads_first(x, how.layout);
  turning p;
  p.type = x.type;
  for (int axis = 0; axis < a.batch_axes(); ++axis) p.batch.push_back(a.shape[axis]);
  p.sequences = p.batch.count();
  p.heads = a.heads();
  p.length = a.length();
  p.width = a.width();
  if (how.dimensions < 0 || how.dimensions > p.width || how.dimensions % 2 != 0)
    refuse("dimensions", "an even number from 0 (all) to " + to_string(p.width), to_string(how.dimensions));
  if (how.dimensions == 0 && p.width % 2 != 0) refuse("x", "an even width, or dimensions beside it", to_string(p.width));
  p.pairs = (how.dimensions == 0 ? p.width : how.dimensions) / 2;
  p.interleaved = how.interleaved;
  if (how.threads < 0) refuse("threads", "a positive number, or 0 for the default", to_string(how.threads));
  if (!positions.given() && !how.cos && !how.sin) refuse("positions", "a first position, or one per token", "none");
  p.rows_by_position = positions.given();
  check_angles(p, how);
  if (positions.given()) check_positions(p, positions, how);
  check_out(x, out, how, positions);

  const detail::axes to = detail::heads_first(out, how.layout);
  p.x = place_tokens(x, a);
  p.out = place_tokens(out, to);
  p.written = static_cast<char*>(out.data);
  p.x_head = a.strides[a.shape.rank() - 3];
  p.out_head = to.strides[to.shape.rank() - 3];
  p.in_place = out.data == x.data && out.strides == x.strides;
  return p;
}

/// Cosines and sines of the tokens that come by, made anew where they differ from those of the token before.
class turns_of_tokens {
 public:
  turns_of_tokens(const turning& p, const wide* frequencies, turn* turns) noexcept
      : p_(p), frequencies_(frequencies), turns_(turns) {}

  const turn* of(std::int64_t b, std::int64_t token) noexcept {
    std::int64_t position = p_.first + token;
    if (p_.positions) position = load<std::int64_t>(p_.positions.at(p_.batch, b, token));
    const std::int64_t row = p_.rows_by_position ? position : token;
    const char* const cos = p_.cos ? p_.cos.at(p_.batch, b, row) : nullptr;
    const char* const sin = p_.cos ? p_.sin.at(p_.batch, b, row) : nullptr;
    if (made_ && row == row_ && cos == cos_ && sin == sin_) return turns_;
    for (std::int64_t m = 0; m < p_.pairs; ++m) {
      turns_[m] = p_.cos ? turn{detail::load_number(cos + m * p_.cos.column * size_of(p_.cos.type), p_.cos.type),
                                detail::load_number(sin + m * p_.sin.column * size_of(p_.sin.type), p_.sin.type)}
                         : turn_at(static_cast<double>(position), frequencies_[m]);
    }
    made_ = true;
    row_ = row;
    cos_ = cos;
    sin_ = sin;
    return turns_;
  }

 private:
  const turning& p_;
  const wide* frequencies_;
  turn* turns_;
  bool made_ = false;
  std::int64_t row_ = 0;
  const char *cos_ = nullptr, *sin_ = nullptr;
};

/// One head of one token. In place, a pair is read before it is written.
template <class T>
void turn_head(const turning& p, const turn* turns, const char* from, char* to) noexcept {
  const std::int64_t x_step = p.x.column * size_of(p.type), out_step = p.out.column * size_of(p.type);
  const std::int64_t next = p.interleaved ? 2 : 1, second = p.interleaved ? 1 : p.pairs;
  for (std::int64_t m = 0; m < p.pairs; ++m) {
    const char* const at = from + m * next * x_step;
    char* const into = to + m * next * out_step;
    const auto a = static_cast<double>(load<T>(at)), b = static_cast<double>(load<T>(at + second * x_step));
    store(into, static_cast<T>(a * turns[m].cos - b * turns[m].sin));
    store(into + second * out_step, static_cast<T>(a * turns[m].sin + b * turns[m].cos));
  }
  if (p.in_place) return;
  for (std::int64_t c = 2 * p.pairs; c < p.width; ++c) store(to + c * out_step, load<T>(from + c * x_step));
}

/// Tokens [first, last), counted with the batch as the inner axis, so that batches at one position follow each other.
void turn_tokens(const turning& p, const wide* frequencies, std::int64_t first, std::int64_t last) {
  auto* const memory = reinterpret_cast<turn*>(detail::thread_scratch(p.pairs * std::int64_t{sizeof(turn)}));
  turns_of_tokens turns(p, frequencies, memory);
  for (std::int64_t n = first; n < last; ++n) {
    const std::int64_t token = n / p.sequences, b = n % p.sequences;
    const turn* const mine = turns.of(b, token);
    const char* from = p.x.at(p.batch, b, token);
    char* to = p.written + (p.out.at(p.batch, b, token) - p.out.data);
    for (std::int64_t head = 0; head < p.heads; ++head) {
      detail::with_type(p.type, [&]<class T>(T) { turn_head<T>(p, mine, from, to); });
      from += p.x_head * size_of(p.type);
      to += p.out_head * size_of(p.type);
    }
  }
}

}  // namespace

void rotary_embedding(const array_view& x, const mutable_array_view& out, const token_positions& positions, const rotary& how) {
  const turning p = check_rotary(x, out, positions, how);
  if (x.shape.count() == 0) return;
  const detail::call_scratch memory(p.cos ? 0 : p.pairs * std::int64_t{sizeof(wide)});
  auto* const frequencies = reinterpret_cast<wide*>(memory.data());
  if (!p.cos) {
    const detail::default_environment environment;
    fill_frequencies(p.base, p.pairs, frequencies);
  }
  detail::for_each_run(p.sequences * p.length, p.cost_of_token(), how.threads > 0 ? how.threads : num_threads(),
                       [&](std::int64_t first, std::int64_t last) { turn_tokens(p, frequencies, first, last); });
}

}  // namespace attend
