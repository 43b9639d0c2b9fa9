// The C ABI: every function converts its arguments, makes one call of the C++ API, and turns what that throws into a status.
#include "attend/c.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "attend/attend.hpp"
#include "c_convert.hpp"
#include "checks.hpp"

using attend::array_view;
using namespace attend::detail;  // the conversions and checks

namespace {

// A fixed buffer: keeping the text of a failure cannot fail.
thread_local char last_error[1024] = "";

attend_status failed(attend_status status, const char* text) noexcept {
  const std::size_t length = std::min(std::strlen(text), sizeof last_error - 1);
  std::memcpy(last_error, text, length);
  last_error[length] = '\0';
  return status;
}

/// q, k and v of a call.
struct inputs_of {
  array_view q, k, v;

  inputs_of(const attend_array* query, const attend_array* key, const attend_array* value)
      : q(read_array("q", query)), k(read_array("k", key)), v(read_array("v", value)) {}
};

void write_shape(const attend::extents& from, std::int64_t* shape, std::int32_t* rank) {
  for (int axis = 0; axis < from.rank(); ++axis) shape[axis] = from[axis];
  *rank = from.rank();
}

attend::plan plan_of(const attend_array* q, const attend_array* k, const attend_array* v, const c_options& how) {
  return attend::make_plan(read_shapes(q, k, v), how.get());
}

attend_facts c_facts(const attend::plan_facts& f) {
  attend_facts to = {};
  to.operation = f.operation.c_str();
  to.kernel = f.kernel.c_str();
  to.reason = f.reason.c_str();
  to.isa = attend::name_of(f.set).data();
  to.compatibility = static_cast<std::int32_t>(f.compatibility);
  to.normalizer = static_cast<std::int32_t>(f.normalizer);
  to.dtype = c_dtype(f.type);
  to.split_keys = f.split_keys;
  to.batch = f.batch;
  to.heads = f.heads;
  to.kv_heads = f.kv_heads;
  to.queries = f.queries;
  to.keys = f.keys;
  to.width = f.width;
  to.value_width = f.value_width;
  to.lanes = f.lanes;
  to.tile_keys = f.tile_keys;
  to.chunk_keys = f.chunk_keys;
  to.lane_blocks = f.lane_blocks;
  to.work_items = f.work_items;
  to.tiles_skipped = f.tiles_skipped;
  to.tiles_full = f.tiles_full;
  to.tiles_partial = f.tiles_partial;
  to.scratch_bytes_per_thread = f.scratch_bytes_per_thread;
  to.shared_scratch_bytes = f.shared_scratch_bytes;
  to.flops = f.flops;
  to.bytes = f.bytes;
  return to;
}

}  // namespace

namespace attend::detail {

attend_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const argument_error& error) {
    const bool type = error.fault() == argument_error::kind::type;
    return failed(type ? ATTEND_ERROR_TYPE : ATTEND_ERROR_ARGUMENT, error.what());
  } catch (const interrupted& error) {
    return failed(ATTEND_INTERRUPTED, error.what());
  } catch (const std::bad_alloc&) {
    return failed(ATTEND_ERROR_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(ATTEND_ERROR_INTERNAL, error.what());
  } catch (...) {
    return failed(ATTEND_ERROR_INTERNAL, "unknown exception");
  }
}

}  // namespace attend::detail

const char* attend_last_error(void) { return last_error; }

attend_status attend_attention(const attend_array* q, const attend_array* k, const attend_array* v,
                               const attend_results* results, const attend_options* options) {
  return status_of([&] {
    const inputs_of x(q, k, v);
    const attend::outputs to = read_results(&needed("results", results));
    attend::attention(x.q, x.k, x.v, to, c_options(options).get());
  });
}

attend_status attend_attention_pages(const attend_array* q, const attend_array* k, const attend_array* v,
                                     const attend_array* cu_seqlens_q, const attend_array* block_table,
                                     const attend_results* results, const attend_options* options) {
  return status_of([&] {
    const inputs_of x(q, k, v);
    const attend::outputs to = read_results(&needed("results", results));
    const attend::block_table table{read_array("block_table", block_table)};
    attend::attention_varlen(x.q, x.k, x.v, read_array("cu_seqlens_q", cu_seqlens_q), table, to, c_options(options).get());
  });
}

attend_status attend_attention_varlen(const attend_array* q, const attend_array* k, const attend_array* v,
                                      const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                      const attend_results* results, const attend_options* options) {
  return status_of([&] {
    const inputs_of x(q, k, v);
    const attend::outputs to = read_results(&needed("results", results));
    attend::attention_varlen(x.q, x.k, x.v, read_array("cu_seqlens_q", cu_seqlens_q), read_array("cu_seqlens_k", cu_seqlens_k),
                             to, c_options(options).get());
  });
}

// attend::check gives the text without the kind of fault, which the status needs.
attend_status attend_check(const attend_array* q, const attend_array* k, const attend_array* v, const attend_results* results,
                           const attend_options* options) {
  return status_of([&] {
    const inputs_of x(q, k, v);
    validate(x.q, x.k, x.v, read_results(results), c_options(options).get());
  });
}

attend_status attend_check_varlen(const attend_array* q, const attend_array* k, const attend_array* v,
                                  const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                  const attend_results* results, const attend_options* options) {
  return status_of([&] {
    const inputs_of x(q, k, v);
    validate_varlen(x.q, x.k, x.v, read_array("cu_seqlens_q", cu_seqlens_q), read_array("cu_seqlens_k", cu_seqlens_k),
                    read_results(results), c_options(options).get());
  });
}

attend_status attend_output_shape(const attend_array* q, const attend_array* k, const attend_array* v,
                                  const attend_options* options, std::int64_t* shape, std::int32_t* rank) {
  return status_of([&] {
    needed("shape", shape);
    needed("rank", rank);
    const inputs_of x(q, k, v);
    write_shape(attend::output_shape(x.q, x.k, x.v, c_options(options).get()), shape, rank);
  });
}

attend_status attend_output_shape_varlen(const attend_array* q, const attend_array* k, const attend_array* v,
                                         const attend_array* cu_seqlens_q, const attend_array* cu_seqlens_k,
                                         const attend_options* options, std::int64_t* shape, std::int32_t* rank) {
  return status_of([&] {
    needed("shape", shape);
    needed("rank", rank);
    const inputs_of x(q, k, v);
    write_shape(attend::output_shape_varlen(x.q, x.k, x.v, read_array("cu_seqlens_q", cu_seqlens_q),
                                            read_array("cu_seqlens_k", cu_seqlens_k), c_options(options).get()),
                shape, rank);
  });
}

attend_status attend_merge(const attend_array* const* outs, const attend_array* const* lses, std::size_t count,
                           const attend_results* results) {
  return status_of([&] {
    std::vector<array_view> parts, logs;
    if (count > 0) needed("outs", outs), needed("lses", lses);
    for (std::size_t part = 0; part < count; ++part) {
      parts.push_back(read_array("outs", outs[part]));
      logs.push_back(read_array("lses", lses[part]));
    }
    attend::merge(parts, logs, read_results(&needed("results", results)));
  });
}

attend_status attend_rotary_embedding(const attend_array* x, const attend_array* out, const attend_integers* positions,
                                      const attend_rotary* options) {
  return status_of([&] {
    attend::rotary_embedding(read_array("x", x), read_array("out", out), read_positions(positions), read_rotary(options));
  });
}

attend_status attend_plan_facts(const attend_array* q, const attend_array* k, const attend_array* v,
                                const attend_options* options, attend_facts* facts) {
  return status_of([&] {
    // The texts that the caller gets pointers to.
    static thread_local attend::plan_facts kept;
    const std::size_t size = read_size("facts", &needed("facts", facts));
    kept = plan_of(q, k, v, c_options(options)).facts();
    attend_facts known = c_facts(kept);
    known.size = size;
    std::memset(facts, 0, size);
    std::memcpy(facts, &known, std::min(size, sizeof known));
  });
}

attend_status attend_plan_describe(const attend_array* q, const attend_array* k, const attend_array* v,
                                   const attend_options* options, char* buffer, std::size_t capacity, std::size_t* length) {
  return status_of([&] {
    if (capacity > 0) needed("buffer", buffer);
    if (capacity == 0) needed("length", length);
    const std::string text = plan_of(q, k, v, c_options(options)).describe();
    if (length) *length = text.size();
    if (capacity == 0) return;
    if (capacity <= text.size())
      refuse("capacity", "at least " + std::to_string(text.size() + 1) + " bytes", std::to_string(capacity));
    std::memcpy(buffer, text.c_str(), text.size() + 1);
  });
}

const char* attend_version(void) { return attend::version().data(); }

const char* attend_isa(void) {
  const char* name = nullptr;
  status_of([&] {
    const std::vector<attend::isa> compiled = attend::compiled_isas();
    for (const attend::isa set : attend::available_isas()) {
      if (std::find(compiled.begin(), compiled.end(), set) != compiled.end()) name = attend::name_of(set).data();
    }
  });
  return name;
}

std::int32_t attend_num_threads(void) {
  std::int32_t threads = 0;
  status_of([&] { threads = attend::num_threads(); });
  return threads;
}

attend_status attend_set_num_threads(std::int32_t threads) {
  return status_of([&] { attend::set_num_threads(threads); });
}
