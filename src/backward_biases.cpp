// A bias that is broadcast along an axis has a gradient that is summed up along it, over pairs that different work items of the other
// gradients compute. So it is made in a pass of its own, whose work items own parts of the bias: each visits all pairs that read its part, in
// order, and makes their scores again. That costs two of five products once more, and neither memory nor bits depend on threads.
#include "backward_biases.hpp"

#include <algorithm>
#include <cstring>

namespace attend::detail {
namespace {

/// Half-open.
struct range {
  std::int64_t begin, end;
};

class bias_part {
 public:
  bias_part(const backward_call& call, int number)
      : call_(call),
        p_(call.p),
        to_(call.g.to.dscore[number]),
        number_(number),
        by_head_(to_.head != 0),
        by_query_(to_.row != 0),
        by_key_(to_.column != 0),
        heads_(by_head_ ? p_.kv_heads : 1),
        blocks_(by_query_ ? call.lane_blocks : 1),
        chunks_(by_key_ ? call.chunks : 1) {}

  std::int64_t count() const noexcept { return p_.batch.count * heads_ * blocks_ * chunks_; }

  void operator()(std::int64_t item) const {
    const std::int64_t chunk = item % chunks_, block = item / chunks_ % blocks_;
    const std::int64_t head = item / chunks_ / blocks_ % heads_, batch = item / chunks_ / blocks_ / heads_;
    if (!is_first(batch)) return;
    const range queries = queries_of_block(block), keys = keys_of_chunk(chunk);
    const std::int64_t slots = (by_head_ ? p_.group : 1) * (by_query_ ? queries.end - queries.begin : 1);
    const std::int64_t columns = by_key_ ? keys.end - keys.begin : 1;
    if (slots == 0 || columns == 0) return;
    const std::int64_t scratch_bytes = call_.kernel.scratch_bytes(call_.shape);
    // One row of sums more, for pairs that read another part.
    const std::int64_t bytes = (slots + 1) * columns * std::int64_t{sizeof(double)};
    char* const memory = thread_scratch(scratch_bytes + bytes);
    double* const sums = reinterpret_cast<double*>(memory + scratch_bytes);
    std::memset(sums, 0, static_cast<std::size_t>(bytes));

    for (std::int64_t b = batch; b < p_.batch.count; ++b) {
      if (offset(b) != offset(batch)) continue;
      for (std::int64_t kv_head = by_head_ ? head : 0; kv_head < (by_head_ ? head + 1 : p_.kv_heads); ++kv_head)
        add_head(b * p_.kv_heads + kv_head, queries, by_key_ ? range{chunk, chunk + 1} : range{0, call_.chunks}, slots, columns,
                 memory, sums);
    }
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const std::int64_t in_group = by_head_ ? slot % p_.group : 0, query = by_head_ ? slot / p_.group : slot;
      const std::int64_t row = offset(batch) + (head * p_.group + in_group) * to_.head + (queries.begin + query) * to_.row;
      for (std::int64_t c = 0; c < columns; ++c) {
        char* const at = static_cast<char*>(to_.data) + (row + (keys.begin + c) * to_.column) * size_of(to_.type);
        store_number(at, to_.type, sums[slot * columns + c]);
      }
    }
  }

 private:
  std::int64_t offset(std::int64_t b) const noexcept { return batch_offset(p_.batch, b, to_.batch); }

  /// Whether no batch before this one reads the same part.
  bool is_first(std::int64_t b) const noexcept {
    for (int axis = p_.batch.axes - 1; axis >= 0; --axis) {
      if (to_.batch[axis] == 0 && b % p_.batch.sizes[axis] != 0) return false;
      b /= p_.batch.sizes[axis];
    }
    return true;
  }

  /// Queries whose first row lies in this block: the rows of one may lie in two blocks.
  range queries_of_block(std::int64_t block) const noexcept {
    if (!by_query_) return {0, p_.queries};
    const auto first = [this](std::int64_t row) { return std::min((row + p_.group - 1) / p_.group, p_.queries); };
    return {first(block * call_.kernel.lanes), first((block + 1) * call_.kernel.lanes)};
  }

  range keys_of_chunk(std::int64_t chunk) const noexcept {
    if (!by_key_) return {0, p_.keys};
    return {chunk * call_.kernel.chunk_keys, std::min((chunk + 1) * call_.kernel.chunk_keys, p_.keys)};
  }

  /// Adds the pairs of a head's queries and chunks.
  void add_head(std::int64_t n, range queries, range chunks, std::int64_t slots, std::int64_t columns, char* scratch,
                double* sums) const {
    const std::int64_t lanes = call_.kernel.lanes;
    for (std::int64_t block = queries.begin * p_.group / lanes; block * lanes < queries.end * p_.group; ++block) {
      const block_place at = call_.place_of(n, block);
      const backward_job job = call_.job_of(at, scratch);
      double* rows[max_lanes];
      for (int lane = 0; lane < job.lanes.count; ++lane) {
        const std::int64_t row = at.first_row + lane, query = row / p_.group;
        const bool own = queries.begin <= query && query < queries.end;
        const std::int64_t slot =
            (by_query_ ? query - queries.begin : 0) * (by_head_ ? p_.group : 1) + (by_head_ ? row % p_.group : 0);
        rows[lane] = sums + (own ? slot : slots) * columns;
      }
      for (std::int64_t c = chunks.begin; c < chunks.end; ++c) {
        const key_range keys = call_.keys_of(n, block, c);
        if (keys.first < keys.last) call_.kernel.pairs(job, keys.first, keys.last, number_, rows, by_key_ ? 1 : 0);
      }
    }
  }

  const backward_call& call_;
  const problem& p_;
  const operand& to_;
  const int number_;
  const bool by_head_, by_query_, by_key_;
  const std::int64_t heads_, blocks_, chunks_;
};

}  // namespace

void differentiate_bias(const backward_call& call, work_items& items, int number) {
  const bool wanted = call.g.to.dscore[number] && call.p.score[number].what == score_function::kind::bias;
  if (!wanted) return;
  const bias_part part(call, number);
  items.for_each(part.count(), part);
}

}  // namespace attend::detail
