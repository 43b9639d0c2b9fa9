#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "calls.hpp"
#include "readers.hpp"

namespace attend::python {
namespace {

nb::str as_str(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::list names_of(const std::vector<isa>& sets) {
  nb::list names;
  for (isa set : sets) names.append(as_str(name_of(set)));
  return names;
}

}  // namespace

nb::dict plan(nb::handle q_shape, nb::handle k_shape, nb::handle v_shape, const char* dtype, const nb::tuple& packed) {
  problem_shape shapes{.type = dtype_named(dtype),
                       .q = read_shape(q_shape, "q_shape"),
                       .k = read_shape(k_shape, "k_shape"),
                       .v = read_shape(v_shape, "v_shape")};
  if (packed.size() != option_arguments::count)
    throw std::logic_error("attend._core: the packed options are not those of this build");
  call_options call(option_arguments(PySequence_Fast_ITEMS(packed.ptr())), shapes.type);
  const attend::plan made = make_plan(shapes, call.how);
  const plan_facts facts = made.facts();
  nb::dict result;
  result["operation"] = nb::str(facts.operation.c_str());
  result["kernel"] = nb::str(facts.kernel.c_str());
  result["reason"] = nb::str(facts.reason.c_str());
  result["isa"] = as_str(name_of(facts.set));
  result["compatibility"] = as_str(name_of(facts.compatibility));
  result["normalizer"] = as_str(name_of(facts.normalizer));
  result["dtype"] = as_str(name_of(facts.type));
  result["batch"] = facts.batch;
  result["heads"] = facts.heads;
  result["kv_heads"] = facts.kv_heads;
  result["queries"] = facts.queries;
  result["keys"] = facts.keys;
  result["width"] = facts.width;
  result["value_width"] = facts.value_width;
  result["lanes"] = facts.lanes;
  result["tile_keys"] = facts.tile_keys;
  result["chunk_keys"] = facts.chunk_keys;
  result["lane_blocks"] = facts.lane_blocks;
  result["work_items"] = facts.work_items;
  result["split_keys"] = facts.split_keys;
  result["tiles_skipped"] = facts.tiles_skipped;
  result["tiles_full"] = facts.tiles_full;
  result["tiles_partial"] = facts.tiles_partial;
  result["scratch_bytes_per_thread"] = facts.scratch_bytes_per_thread;
  result["shared_scratch_bytes"] = facts.shared_scratch_bytes;
  result["flops"] = facts.flops;
  result["bytes"] = facts.bytes;
  result["text"] = nb::str(describe(facts).c_str());
  return result;
}

nb::dict info() {
  nb::dict sets;
  sets["detected"] = names_of(detected_isas());
  sets["compiled"] = names_of(compiled_isas());
  sets["available"] = names_of(available_isas());
  nb::dict result;
  result["version"] = as_str(version());
  result["instruction_sets"] = sets;
  result["threads"] = num_threads();
  return result;
}

void set_thread_count(nb::handle threads) { set_num_threads(read_thread_count(threads)); }

}  // namespace attend::python
