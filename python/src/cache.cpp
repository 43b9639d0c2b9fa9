// Caches and decoding: the classes below attend.KVCache and attend.PagedKVCache.
#include <cmath>
#include <new>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "attend/kv_cache.hpp"
#include "calls.hpp"
#include "entry.hpp"
#include "readers.hpp"
#include "results.hpp"
#include "run.hpp"

namespace attend::python {
namespace {

std::optional<std::int64_t> optional_integer(nb::handle value, const char* name) {
  if (value.is_none()) return std::nullopt;
  return read_integer(value, name);
}

/// None, one integer, or one per sequence, for as long as this lives.
class token_counts {
 public:
  token_counts(nb::handle value, const char* name) {
    if (value.is_none()) return;
    if (is_integer(value)) {
      counts_ = read_integer(value, name);
      return;
    }
    const bool list = PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
    if (!list && !borrowed_array::is_array(value))
      refuse_type(name, "an integer, or one per sequence in a list or an array", value);
    held_ = list ? as_integer_array(value, name) : nb::borrow(value);
    const array_view view = array_.emplace(held_, name).view();
    counts_ = tensor_view<const std::int64_t>(static_cast<const std::int64_t*>(view.data), view.shape, view.strides);
  }
  const batch_integers& get() const noexcept { return counts_; }

 private:
  nb::object held_;
  std::optional<integer_array> array_;
  batch_integers counts_;
};

/// None, "int8" or "int4" for keys and values, or a pair of these.
struct quantized_sides {
  explicit quantized_sides(nb::handle given) : keys(quantization::none), values(quantization::none) {
    if (PyTuple_Check(given.ptr()) || PyList_Check(given.ptr())) {
      const nb::object pair = nb::steal(PySequence_Tuple(given.ptr()));
      if (nb::len(pair) != 2) refuse_value("quantized", expected, given);
      keys = one(nb::object(pair[0]));
      values = one(nb::object(pair[1]));
    } else {
      keys = values = one(given);
    }
  }
  quantization keys, values;

 private:
  static constexpr const char* expected = "None, 'int8', 'int4', or a pair of these for keys and values";
  static quantization one(nb::handle given) {
    if (given.is_none()) return quantization::none;
    if (!PyUnicode_Check(given.ptr())) refuse_type("quantized", expected, given);
    if (PyUnicode_CompareWithASCIIString(given.ptr(), "int8") == 0) return quantization::int8;
    if (PyUnicode_CompareWithASCIIString(given.ptr(), "int4") == 0) return quantization::int4;
    refuse_value("quantized", expected, given);
  }
};

/// None, or the base of a rotary embedding, whether its pairs are interleaved, and None or its dimensions.
std::optional<rotary> read_rotary(nb::handle base, nb::handle interleaved, nb::handle dimensions, std::int64_t width) {
  rotary how{.interleaved = read_flag(interleaved, "rotary_interleaved"),
             .dimensions = optional_integer(dimensions, "rotary_dim").value_or(0)};
  if (base.is_none()) {
    if (how.interleaved || how.dimensions != 0)
      refuse_value("rotary_base", "a number beside rotary_interleaved or rotary_dim", base);
    return std::nullopt;
  }
  how.base = *read_number(base, "rotary_base");
  if (!(how.base >= 1) || !std::isfinite(how.base)) refuse_value("rotary_base", "a finite number of at least 1", base);
  if (how.dimensions < 0 || how.dimensions > width || how.dimensions % 2 != 0)
    refuse_value("rotary_dim", "an even number from 2 to dim, " + std::to_string(width), dimensions);
  if (how.dimensions == 0 && width % 2 != 0) refuse_value("rotary_dim", "an even number, because dim is odd", dimensions);
  return how;
}

void make_cache(kv_cache* self, nb::handle batch, nb::handle kv_heads, nb::handle capacity, nb::handle dim,
                nb::handle value_dim, const char* dtype, nb::handle window, nb::handle rotary_base,
                nb::handle rotary_interleaved, nb::handle rotary_dim, nb::handle quantized) {
  const quantized_sides sides(quantized);
  new (self) kv_cache({.batch = read_integer(batch, "batch"),
                       .kv_heads = read_integer(kv_heads, "kv_heads"),
                       .capacity = read_integer(capacity, "capacity"),
                       .dim = read_integer(dim, "dim"),
                       .value_dim = optional_integer(value_dim, "value_dim"),
                       .type = dtype_named(dtype),
                       .window = optional_integer(window, "window"),
                       .quantized_keys = sides.keys,
                       .quantized_values = sides.values,
                       .rotary = read_rotary(rotary_base, rotary_interleaved, rotary_dim, read_integer(dim, "dim"))});
}

void make_pages(paged_kv_cache* self, nb::handle pages, nb::handle page_size, nb::handle kv_heads, nb::handle dim,
                nb::handle value_dim, const char* dtype, nb::handle rotary_base, nb::handle rotary_interleaved,
                nb::handle rotary_dim, nb::handle quantized) {
  const quantized_sides sides(quantized);
  if (read_integer(pages, "num_pages") < 0) refuse_value("num_pages", "a number of at least 0", pages);
  new (self) paged_kv_cache({.pages = read_integer(pages, "num_pages"),
                             .page_size = read_integer(page_size, "page_size"),
                             .kv_heads = read_integer(kv_heads, "kv_heads"),
                             .dim = read_integer(dim, "dim"),
                             .value_dim = optional_integer(value_dim, "value_dim"),
                             .type = dtype_named(dtype),
                             .quantized_keys = sides.keys,
                             .quantized_values = sides.values,
                             .rotary = read_rotary(rotary_base, rotary_interleaved, rotary_dim, read_integer(dim, "dim"))});
}

/// New tokens.
struct token_rows {
  token_rows(nb::handle keys, nb::handle values) : k(keys, "k"), v(values, "v") {
    for (const borrowed_array* array : {&k, &v}) array->require_floating();
  }
  borrowed_array k, v;
};

sequence_id read_sequence(nb::handle value) { return sequence_id{read_integer(value, "sequence")}; }

std::vector<sequence_id> read_sequences(nb::handle list) {
  const nb::object items = nb::steal(PySequence_List(list.ptr()));
  if (!items.is_valid()) {
    PyErr_Clear();
    refuse_type("sequences", "a list of sequences", list);
  }
  std::vector<sequence_id> sequences;
  for (const nb::handle item : items) sequences.push_back(sequence_id{read_integer(item, "sequences")});
  return sequences;
}

nb::list as_list(std::span<const std::int64_t> values) {
  nb::list list;
  for (const std::int64_t value : values) list.append(value);
  return list;
}

/// Calls run(shape of out, keys of the longest sequence, call(results, options)) for either cache.
template <class Run>
nb::object over_cache(nb::handle cache, nb::handle sequences, const array_view& q, const options& how, const Run& run) {
  const auto longest = [](const auto& lengths) {
    std::int64_t most = 0;
    for (const std::int64_t length : lengths) most = std::max(most, length);
    return most;
  };
  const bool made = (nb::isinstance<kv_cache>(cache) || nb::isinstance<paged_kv_cache>(cache)) && nb::inst_ready(cache);
  if (nb::isinstance<kv_cache>(cache) && made) {
    if (!sequences.is_none()) refuse_value("sequences", "None for a KVCache, whose sequences are its batch", sequences);
    kv_cache& held = *nb::inst_ptr<kv_cache>(cache);
    return run(decoded_shape(q, held, how), longest(held.lengths()),
               [&](const outputs& to, const options& with) { decode(q, held, to, with); });
  }
  if (!made) refuse_type("cache", "a KVCache or a PagedKVCache whose __init__ was called", cache);
  if (sequences.is_none()) refuse_value("sequences", "a list of sequences of the PagedKVCache", sequences);
  const paged_kv_cache& held = *nb::inst_ptr<paged_kv_cache>(cache);
  const std::vector<sequence_id> ids = read_sequences(sequences);
  std::vector<std::int64_t> lengths;
  for (const sequence_id id : ids) lengths.push_back(held.length(id));
  return run(decoded_shape(q, held, ids, how), longest(lengths),
             [&](const outputs& to, const options& with) { decode(q, held, ids, to, with); });
}

}  // namespace

nb::object decode(const argument_slots& arguments) {
  const borrowed_array q(arguments.input(0), "q");
  q.require_floating();
  call_options call(option_arguments(arguments.first_option()), q.view().type);
  const wanted_results wanted(arguments.first_result());
  check_lse(wanted.lse, call.how);
  return over_cache(arguments.input(6), arguments.input(7), q.view(), call.how,
                    [&](const extents& shape, std::int64_t keys, const auto& compute) {
                      call_results made(arguments.input(0), wanted, q.view().type, shape, {1, 1, keys, 1}, layout::bhld);
                      run(call.how, [&](const options& how) { compute(made.to(), how); });
                      return made.finish();
                    });
}

void define_caches(nb::module_& module) {
  nb::class_<kv_cache>(module, "kv_cache")
      .def("__init__", &make_cache, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def(
          "append",
          [](kv_cache& self, nb::handle k, nb::handle v, nb::handle lengths) {
            const token_rows rows(k, v);
            const token_counts counts(lengths, "lengths");
            self.append(rows.k.view(), rows.v.view(), counts.get());
          },
          nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def(
          "truncate", [](kv_cache& self, nb::handle lengths) { self.truncate(token_counts(lengths, "lengths").get()); },
          nb::arg().none())
      .def("reset", &kv_cache::reset)
      .def("lengths", [](const kv_cache& self) { return as_list(self.lengths()); });
  nb::class_<paged_kv_cache>(module, "paged_kv_cache")
      .def("__init__", &make_pages, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def("new_sequence", [](paged_kv_cache& self) { return static_cast<std::int64_t>(self.new_sequence()); })
      .def(
          "fork", [](paged_kv_cache& self, nb::handle s) { return static_cast<std::int64_t>(self.fork(read_sequence(s))); },
          nb::arg().none())
      .def(
          "free", [](paged_kv_cache& self, nb::handle s) { self.free(read_sequence(s)); }, nb::arg().none())
      .def(
          "append",
          [](paged_kv_cache& self, nb::handle s, nb::handle k, nb::handle v) {
            const token_rows rows(k, v);
            self.append(read_sequence(s), rows.k.view(), rows.v.view());
          },
          nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def(
          "truncate",
          [](paged_kv_cache& self, nb::handle s, nb::handle length) {
            self.truncate(read_sequence(s), read_integer(length, "length"));
          },
          nb::arg().none(), nb::arg().none())
      .def(
          "length", [](const paged_kv_cache& self, nb::handle s) { return self.length(read_sequence(s)); }, nb::arg().none())
      .def(
          "pages", [](const paged_kv_cache& self, nb::handle s) { return as_list(self.pages(read_sequence(s))); },
          nb::arg().none())
      .def("free_pages", &paged_kv_cache::free_pages);
}

}  // namespace attend::python
