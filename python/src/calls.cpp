#include "calls.hpp"

#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "attend/merge.hpp"
#include "attend/position.hpp"
#include "entry.hpp"
#include "inputs.hpp"
#include "python_objects.hpp"
#include "readers.hpp"
#include "results.hpp"
#include "run.hpp"

namespace attend::python {
namespace {

/// Parts of a list of arrays, each called by its place in it.
class part_list {
 public:
  part_list(nb::handle list, const char* name) {
    const nb::object iterator = nb::steal(PyObject_GetIter(list.ptr()));
    if (!iterator.is_valid()) {
      PyErr_Clear();
      refuse_type(name, "a list of arrays", list);
    }
    const nb::object parts = nb::steal(PySequence_List(iterator.ptr()));
    if (!parts.is_valid()) throw nb::python_error();
    const std::size_t count = nb::len(parts);
    names_.reserve(count);  // what is borrowed keeps a view of its name
    for (std::size_t n = 0; n < count; ++n) {
      names_.push_back(std::string(name) + "[" + std::to_string(n) + "]");
      objects_.push_back(nb::object(parts[n]));
      const borrowed_array& part = arrays_.emplace_back(objects_.back(), names_.back());
      part.require_floating();
      views_.push_back(part.view());
    }
  }

  nb::handle first() const { return objects_.front(); }
  const std::vector<array_view>& views() const noexcept { return views_; }

 private:
  std::vector<std::string> names_;
  std::vector<nb::object> objects_;
  std::vector<borrowed_array> arrays_;
  std::vector<array_view> views_;
};

}  // namespace

nb::object attention(const argument_slots& arguments) {
  const inputs in(arguments);
  call_options call(option_arguments(arguments.first_option()), in.q().type);
  const wanted_results wanted(arguments.first_result());
  check_lse(wanted.lse, call.how);
  const extents shape = output_shape(in.q(), in.k(), in.v(), call.how);
  call_results made(arguments.input(0), wanted, in.q().type, shape, in.key.shape(), call.how.layout);
  run(call.how, [&](const options& how) { attend::attention(in.q(), in.k(), in.v(), made.to(), how); });
  return made.finish();
}

nb::object attention_varlen(const argument_slots& arguments) {
  const inputs in(arguments);
  const integer_array starts_q = integer_array::boundaries(arguments.input(3), "cu_seqlens_q");
  const nb::handle starts = arguments.input(4), table = arguments.input(5);
  if (starts.is_none() == table.is_none())
    throw argument_error("cu_seqlens_k, block_table", "exactly one of them", starts.is_none() ? "none" : "both");
  const bool paged = !table.is_none();
  const integer_array keys = integer_array::boundaries(paged ? table : starts, paged ? "block_table" : "cu_seqlens_k");
  call_options call(option_arguments(arguments.first_option()), in.q().type);
  const wanted_results wanted(arguments.first_result());
  check_lse(wanted.lse, call.how);
  const auto with_keys = [&](const auto& use) { return paged ? use(block_table{keys.view()}) : use(keys.view()); };
  const extents shape = with_keys(
      [&](const auto& where) { return output_shape_varlen(in.q(), in.k(), in.v(), starts_q.view(), where, call.how); });
  // (total, H, Ev), whose rows (total, H) need no turning.
  call_results made(arguments.input(0), wanted, in.q().type, shape, in.key.shape(), layout::bhld);
  run(call.how, [&](const options& how) {
    with_keys(
        [&](const auto& where) { attend::attention_varlen(in.q(), in.k(), in.v(), starts_q.view(), where, made.to(), how); });
  });
  return made.finish();
}

nb::object merge(nb::handle outs, nb::handle lses) {
  const part_list parts(outs, "outs"), logs(lses, "lses");
  attend::merge(parts.views(), logs.views(), outputs{});  // checks, before anything is allocated
  const array_view &first_out = parts.views()[0], &first_lse = logs.views()[0];
  const result_factory out_factory(parts.first(), first_out.type), lse_factory(logs.first(), first_lse.type);
  auto [out, out_view] = out_factory.make(first_out.shape);
  auto [lse, lse_view] = lse_factory.make(first_lse.shape);
  {
    nb::gil_scoped_release unlocked;
    attend::merge(parts.views(), logs.views(), {.out = out_view, .lse = lse_view});
  }
  return out_and_lse(out_factory.finish(std::move(out)), lse_factory.finish(std::move(lse)));
}

nb::object rotary_embedding(nb::handle x, nb::handle cos, nb::handle sin, nb::handle positions, bool interleaved,
                            std::int64_t dimensions, nb::handle order) {
  const borrowed_array from(x, "x"), cosines(cos, "cos"), sines(sin, "sin");
  for (const borrowed_array* array : {&from, &cosines, &sines}) array->require_floating();
  std::optional<integer_array> rows;
  token_positions at;
  if (!positions.is_none()) at = token_positions(rows.emplace(positions, "positions").view());
  const rotary how{.interleaved = interleaved,
                   .dimensions = dimensions,
                   .cos = cosines.view(),
                   .sin = sines.view(),
                   .layout = read_layout(order)};
  const result_factory factory(x, from.view().type);
  auto [out, view] = factory.make(from.shape());
  {
    const mutable_array_view to = view;
    nb::gil_scoped_release unlocked;
    attend::rotary_embedding(from.view(), to, at, how);
  }
  return factory.finish(std::move(out));
}

double positive(nb::handle value, const char* name) { return read_positive(value, name); }

void require_array(nb::handle value, const char* name) { borrowed_array::require_array(value, name); }

}  // namespace attend::python
