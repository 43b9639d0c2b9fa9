// attend plan: the route of a call, and the least time that this machine's limits allow for it.
#include <iostream>

#include "call.hpp"
#include "commands.hpp"
#include "roofline.hpp"
#include "text.hpp"

namespace attend::cli {

namespace {

extents to_extents(const io::entry& from, const char* role) {
  extents shape;
  if (from.shape.size() > static_cast<std::size_t>(max_rank)) {
    throw usage_error(std::string(role) + ": expected rank 2 to 8, got rank " + std::to_string(from.shape.size()));
  }
  for (const std::int64_t size : from.shape) shape.push_back(size);
  return shape;
}

/// From headers alone.
problem_shape shapes_of(const inputs& tensors) {
  problem_shape shapes;
  const io::entry q = tensors.describe(0), k = tensors.describe(1), v = tensors.describe(2);
  for (const auto& [entry, role] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}}) {
    if (entry->dtype == dtype::none)
      throw usage_error(std::string(role) + ": expected float32, float64, float16 or bfloat16, got " + entry->stored);
    if (entry->dtype != q.dtype) {
      throw usage_error(std::string(role) + ": expected " + q.stored + ", the dtype of q, got " + entry->stored);
    }
  }
  shapes.type = q.dtype;
  shapes.q = to_extents(q, "q");
  shapes.k = to_extents(k, "k");
  shapes.v = to_extents(v, "v");
  return shapes;
}

problem_shape shapes_of(const plan_arguments& given, layout order) {
  const auto sizes = parse_integers(*given.shape);
  if (!sizes || sizes->size() < 6 || sizes->size() > 7) {
    throw usage_error("--shape: expected six or seven whole numbers B,H,Hk,L,S,E[,Ev], got '" + *given.shape + "'");
  }
  const auto tensor_shape = [&](int heads, int length, int width) {
    const auto& n = *sizes;
    const auto at = [&](int i) { return n[static_cast<std::size_t>(i)]; };
    return order == layout::bhld ? extents{n[0], at(heads), at(length), at(width)}
                                 : extents{n[0], at(length), at(heads), at(width)};
  };
  problem_shape shapes;
  if (given.input.dtype) shapes.type = parse_dtype(*given.input.dtype);
  shapes.q = tensor_shape(1, 3, 5);
  shapes.k = tensor_shape(2, 4, 5);
  shapes.v = tensor_shape(2, 4, sizes->size() == 7 ? 6 : 5);
  return shapes;
}

nlohmann::ordered_json numbers_of(const plan_facts& facts) {
  return {{"operation", facts.operation},
          {"kernel", facts.kernel},
          {"reason", facts.reason},
          {"instruction_set", name_of(facts.set)},
          {"compatibility", name_of(facts.compatibility)},
          {"normalizer", name_of(facts.normalizer)},
          {"dtype", name_of(facts.type)},
          {"batch", facts.batch},
          {"heads", facts.heads},
          {"kv_heads", facts.kv_heads},
          {"queries", facts.queries},
          {"keys", facts.keys},
          {"width", facts.width},
          {"value_width", facts.value_width},
          {"lanes", facts.lanes},
          {"tile_keys", facts.tile_keys},
          {"chunk_keys", facts.chunk_keys},
          {"lane_blocks", facts.lane_blocks},
          {"work_items", facts.work_items},
          {"split_keys", facts.split_keys},
          {"tiles_skipped", facts.tiles_skipped},
          {"tiles_full", facts.tiles_full},
          {"tiles_partial", facts.tiles_partial},
          {"scratch_bytes_per_thread", facts.scratch_bytes_per_thread},
          {"shared_scratch_bytes", facts.shared_scratch_bytes},
          {"flops", facts.flops},
          {"bytes", facts.bytes}};
}

}  // namespace

int plan(const plan_arguments& given) {
  if (given.input.paths.empty() != given.shape.has_value()) {
    throw usage_error(std::string("IN: expected either files or --shape, got ") + (given.shape ? "both" : "neither"));
  }
  if (given.shape && given.input.names) throw usage_error("--names: expected with IN alone, got --shape");
  if (given.varlen) {
    refuse("--varlen", "none: a plan is made from one shape and knows no packed sequences (attend check names their kernels)",
           in_quotes(*given.varlen));
  }
  inputs tensors(given.input);
  const call_options call(given.options, tensors);
  with_origins(tensors, [&] {
    const problem_shape shapes = given.shape ? shapes_of(given, call.how().layout) : shapes_of(tensors);
    const attend::plan route = make_plan(shapes, call.how());
    const plan_facts facts = route.facts();
    const roofline limits = roofline::measure(facts.type, call.threads());
    const double least = limits.least(facts.flops, facts.bytes);
    if (given.json) {
      nlohmann::ordered_json all = numbers_of(facts);
      all["limits"] = {{"threads", limits.threads},
                       {"fma_dtype", name_of(accumulator_of(limits.type))},
                       {"fma_flops_per_second", limits.fma},
                       {"read_bytes_per_second", limits.read}};
      all["least_milliseconds"] = least * 1e3;
      all["bound_by"] = limits.reason(facts.flops, facts.bytes);
      return print(all);
    }
    const std::string text = route.describe();
    std::cout << text << (text.ends_with('\n') ? "" : "\n") << "least time: " << number(least * 1e3) << " ms at "
              << limits.peaks() << " with " << limits.threads << " threads (bound by "
              << limits.reason(facts.flops, facts.bytes) << ")\n";
  });
  return 0;
}

}  // namespace attend::cli
