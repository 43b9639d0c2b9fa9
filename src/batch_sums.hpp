// Gradients of arrays that are broadcast along batch axes: made for every batch in the accumulator's type, then summed up in order.
#pragma once

#include <optional>

#include "problem.hpp"
#include "scratch.hpp"
#include "work_items.hpp"

namespace attend::detail {

class batch_sums {
 public:
  /// `wanted`: the gradient, whose batch axes do not move where it is summed up; of this many heads, rows and columns.
  batch_sums(const problem& p, const operand& wanted, std::int64_t heads, std::int64_t rows, std::int64_t columns)
      : p_(p), wanted_(wanted), made_(wanted), heads_(heads), rows_(rows), columns_(columns) {
    if (!wanted || !is_summed()) return;
    made_.type = accumulator_of(p.type);
    made_.column = 1;
    made_.row = columns;
    made_.head = rows * columns;
    std::int64_t step = heads * made_.head;
    for (int axis = p.batch.axes - 1; axis >= 0; step *= p.batch.sizes[axis--]) made_.batch[axis] = step;
    memory_.emplace(p.batch.count * heads * made_.head * size_of(made_.type));
    made_.data = memory_->data();
  }

  /// Where the gradients of every batch go.
  const operand& to() const noexcept { return made_; }

  /// Sums them up.
  void finish(work_items& items) const {
    if (!memory_) return;
    items.for_each(p_.batch.count * heads_, [this](std::int64_t item) {
      const std::int64_t batch = item / heads_, head = item % heads_;
      const std::int64_t own = batch_offset(p_.batch, batch, wanted_.batch);
      for (std::int64_t b = 0; b < batch; ++b) {
        if (batch_offset(p_.batch, b, wanted_.batch) == own) return;  // summed up there
      }
      for (std::int64_t row = 0; row < rows_; ++row) {
        for (std::int64_t c = 0; c < columns_; ++c) {
          double sum = 0;
          for (std::int64_t b = batch; b < p_.batch.count; ++b) {
            if (batch_offset(p_.batch, b, wanted_.batch) == own)
              sum += number_at(made_, batch_offset(p_.batch, b, made_.batch) + head * made_.head + row * made_.row + c);
          }
          char* const at = static_cast<char*>(row_pointer(p_.batch, wanted_, batch, head, row));
          store_number(at + c * wanted_.column * size_of(wanted_.type), wanted_.type, sum);
        }
      }
    });
  }

 private:
  bool is_summed() const noexcept {
    if (p_.query_starts) return false;  // packed sequences have rows of their own
    for (int axis = 0; axis < p_.batch.axes; ++axis) {
      if (p_.batch.sizes[axis] > 1 && wanted_.batch[axis] == 0) return true;
    }
    return false;
  }

  const problem& p_;
  const operand wanted_;
  operand made_;
  std::int64_t heads_, rows_, columns_;
  std::optional<call_scratch> memory_;
};

}  // namespace attend::detail
