// Halves as kernels find them in memory. Every policy includes this in its namespace, so that nothing of it is shared between units.

template <float_format Format>
struct half {
  std::uint16_t bits;

  half() = default;
  [[gnu::always_inline]] inline explicit half(float x) {
    std::uint32_t wide;
    __builtin_memcpy(&wide, &x, sizeof wide);
    bits = narrow<float32_format, Format>(wide);
  }
  [[gnu::always_inline]] inline explicit operator float() const {
    const std::uint32_t wide = widen<Format>(bits);
    float x;
    __builtin_memcpy(&x, &wide, sizeof x);
    return x;
  }
};
using f16 = half<float16_format>;
using bf16 = half<bfloat16_format>;
