// Keys and values of the text so far, for every layer: what attend keeps between tokens.
#pragma once

#include <attend/attend.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace generate {

/// What a model asks of its caches.
struct cache_sizes {
  std::int64_t layers = 0, kv_heads = 0, head_width = 0;
  double rotary_base = 10000;
};

enum class cache_kind { contiguous, paged };

/// What a user asks of them.
struct cache_options {
  cache_kind kind = cache_kind::contiguous;
  std::int64_t tokens = 0;             ///< of prompt and continuation together
  std::optional<std::int64_t> window;  ///< newest tokens that each token sees, itself included; default: all
  int threads = 0;                     ///< at most so many; 0 = what attend takes by default
};

/// At most so many tokens may be given at a time: a ring has to hold all that the first of them sees until they are decoded.
inline constexpr std::int64_t most_tokens_at_a_time = 64;

/// One sequence. Keys are turned by their positions when they come and queries when they are decoded, so that the model has no code for that.
class caches {
 public:
  virtual ~caches() = default;

  /// k and v of new tokens, (1, kv_heads, n, head_width).
  void append(std::size_t layer, const attend::array_view& k, const attend::array_view& v);
  /// Their queries, (1, heads, n, head_width).
  void decode(std::size_t layer, const attend::array_view& q, const attend::mutable_array_view& out);

  /// Time in both since the object was made.
  std::chrono::duration<double> time() const { return time_; }

 private:
  virtual void do_append(std::size_t layer, const attend::array_view& k, const attend::array_view& v) = 0;
  virtual void do_decode(std::size_t layer, const attend::array_view& q, const attend::mutable_array_view& out) = 0;

  std::chrono::duration<double> time_{};
};

/// Throws `attend::argument_error`, `std::bad_alloc`.
std::unique_ptr<caches> make_caches(const cache_sizes& sizes, const cache_options& how);

}  // namespace generate
