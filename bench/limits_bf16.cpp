// Loops of products of bfloat16 that sum up in float32: AVX-512's dot products of pairs, and products of AMX tiles.
#include "limits_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

namespace attend::limits {
namespace {

constexpr std::uint16_t near_one = 0x3f7f;  // 0.996 in bfloat16: products stay far from what costs more than others

__attribute__((target("avx512f,avx512bf16"))) void dot_products_of_pairs(std::int64_t steps) {
  const __m512i halves = _mm512_set1_epi16(static_cast<short>(near_one));
  __m512bh a, b;
  std::memcpy(&a, &halves, sizeof a);
  std::memcpy(&b, &halves, sizeof b);
  __m512 x[accumulators];
#pragma GCC unroll 32
  for (int i = 0; i < accumulators; ++i) x[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 32
    for (int i = 0; i < accumulators; ++i) {
      x[i] = _mm512_dpbf16_ps(x[i], a, b);
      asm volatile("" : "+v"(x[i]));  // every sum is wanted, in the order in which it stands here
    }
  }
}

/// What `ldtilecfg` reads: rows and bytes of a row of each tile.
struct alignas(64) tile_configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

constexpr int tile_rows = 16, tile_row_bytes = 64;

/// Four sums, each of a product of two tiles: enough for a latency of 52 cycles where one begins every 16.
__attribute__((target("amx-tile,amx-bf16"))) void products_of_tiles(std::int64_t steps) {
  tile_configuration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = tile_row_bytes;
    configuration.rows[tile] = tile_rows;
  }
  alignas(64) std::uint16_t halves[tile_rows * tile_row_bytes / 2];
  for (std::uint16_t& half : halves) half = near_one;
  asm volatile("" : : "r"(&configuration), "r"(halves) : "memory");  // tile instructions do not say what they read
  _tile_loadconfig(&configuration);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, halves, tile_row_bytes);
  _tile_loadd(5, halves, tile_row_bytes);
  _tile_loadd(6, halves, tile_row_bytes);
  _tile_loadd(7, halves, tile_row_bytes);
  for (std::int64_t step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace

// A product of pairs has 16 sums of two products; a unit of tiles takes a row of 32 numbers times 16 columns in a cycle.
const bf16_loop dpbf16_loop = {32, 32 * accumulators, dot_products_of_pairs};
const bf16_loop amx_bf16_loop = {512, 4 * 16 * 512, products_of_tiles};

}  // namespace attend::limits
#endif
