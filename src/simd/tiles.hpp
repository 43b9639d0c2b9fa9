// Tile units: eight tiles of 16 rows of 64 bytes, and C += A B for C of float32, A of bfloat16 with 32 columns, and B of 16 rows of pairs
// (Intel 64 and IA-32 Architectures Software Developer's Manual, AMX). `amx_tiles` is the hardware's; `software_tiles` does the same in
// C++, so that the logic above is tested on processors without it.
#pragma once

#include <cstdint>

namespace attend::detail::avx512 {
namespace {

/// What tiles this project uses look like: all of them of full size.
struct tile_configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(tile_configuration) == 64);

#if defined(__AMX_BF16__)
/// The hardware's. g++ 12 has intrinsics for literal tile numbers alone, and drops the configuration unless memory is said to be read;
/// hence assembly. Compilers put nothing into tiles themselves.
struct amx_tiles {
  amx_tiles() {
    const tile_configuration configuration;
    asm volatile("ldtilecfg %0" : : "m"(configuration) : "memory");
  }
  ~amx_tiles() { asm volatile("tilerelease" : : : "memory"); }
  amx_tiles(const amx_tiles&) = delete;
  amx_tiles& operator=(const amx_tiles&) = delete;

  template <int Tile>
  [[gnu::always_inline]] inline void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  template <int Tile>
  [[gnu::always_inline]] inline void load(const void* rows, std::int64_t step) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(rows), "r"(step) : "memory");
  }
  template <int Tile>
  [[gnu::always_inline]] inline void store(void* rows, std::int64_t step) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(Tile), "r"(rows), "r"(step) : "memory");
  }
  template <int C, int A, int B>
  [[gnu::always_inline]] inline void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};
#endif

/// The same, slowly. Numbers below the normal ones are not taken for 0, as the hardware does.
struct software_tiles {
  alignas(64) std::uint32_t tiles[8][16][16];

  template <int Tile>
  void zero() {
    __builtin_memset(tiles[Tile], 0, sizeof tiles[Tile]);
  }
  template <int Tile>
  void load(const void* rows, std::int64_t step) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(tiles[Tile][i], static_cast<const char*>(rows) + i * step, 64);
  }
  template <int Tile>
  void store(void* rows, std::int64_t step) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(static_cast<char*>(rows) + i * step, tiles[Tile][i], 64);
  }
  template <int C, int A, int B>
  void multiply() {
    const auto number = [](std::uint32_t bits) {
      float x;
      __builtin_memcpy(&x, &bits, sizeof x);
      return x;
    };
    for (int i = 0; i < 16; ++i) {
      float sum[16];
      __builtin_memcpy(sum, tiles[C][i], sizeof sum);
      for (int k = 0; k < 16; ++k) {
        const std::uint32_t a = tiles[A][i][k];
        const float first = number(a << 16), second = number(a & 0xffff0000);
        for (int j = 0; j < 16; ++j) {
          const std::uint32_t b = tiles[B][k][j];
          sum[j] += first * number(b << 16) + second * number(b & 0xffff0000);
        }
      }
      __builtin_memcpy(tiles[C][i], sum, sizeof sum);
    }
  }
};

}  // namespace
}  // namespace attend::detail::avx512
