#include "check.hpp"

#include <algorithm>
#include <cstdio>

#include "contenders.hpp"

namespace attend::kernel_ladder {
namespace {

struct check_case {
  sizes shape;
  double amplitude;  // of inputs: 1 spreads weights evenly, 8 gives one key nearly all
};

/// Heads, queries, keys, E, Ev. Tiles have 64, 96 or (amx) 256 keys, blocks 64 or (amx) 32 queries; amx takes widths by 32.
const std::vector<check_case> cases = {
    {{1, 1, 1, 1, 1}, 1},       {{1, 5, 3, 7, 9}, 1},      {{2, 64, 96, 64, 64}, 1},    {{1, 65, 97, 64, 66}, 1},
    {{1, 63, 95, 33, 17}, 8},   {{3, 70, 333, 40, 5}, 1},  {{1, 130, 1000, 64, 64}, 8}, {{1, 1, 1, 32, 32}, 1},
    {{2, 33, 31, 32, 64}, 1},   {{1, 31, 33, 96, 32}, 1},  {{1, 64, 256, 64, 64}, 1},   {{1, 70, 257, 64, 32}, 8},
    {{2, 40, 287, 128, 96}, 1}, {{1, 20, 300, 32, 32}, 1},
};

const contender& named(const std::string& name) {
  const auto& all = contenders();
  const auto found = std::find_if(all.begin(), all.end(), [&](const contender& one) { return one.name == name; });
  if (found == all.end()) {
    std::string names;
    for (const contender& one : all) names += (names.empty() ? "" : ", ") + std::string(one.name);
    throw argument_error("--check", "names among " + names, name);
  }
  return *found;
}

/// The worst of all cases that the contender takes, in parts of the bound.
double worst_part(const contender& one, std::size_t& taken) {
  double worst = 0;
  for (const auto& [shape, amplitude] : cases) {
    if (!one.takes(shape)) continue;
    const tasks work(shape, amplitude);
    const auto calculation = one.prepare(work);
    calculation->run();
    worst = std::max(worst, calculation->part_of_bound());
    ++taken;
  }
  return worst;
}

}  // namespace

verdict check(const std::vector<std::string>& names) {
  std::vector<contender> chosen;
  for (const std::string& name : names) chosen.push_back(named(name));
  verdict result = verdict::skipped;
  for (const contender& one : names.empty() ? contenders() : chosen) {
    const std::string name(one.name);
    if (!one.is_here()) {
      std::printf("%-12s  not on this machine\n", name.c_str());
      continue;
    }
    std::size_t taken = 0;
    const double worst = worst_part(one, taken);
    const bool right = taken > 0 && worst <= 1;
    std::printf("%-12s  %s: %zu of %zu shapes, largest difference from float64 %.2g %% of the bound\n", name.c_str(),
                right ? "right" : "WRONG", taken, cases.size(), 100 * worst);
    if (!right) result = verdict::wrong;
    if (right && result == verdict::skipped) result = verdict::right;
  }
  return result;
}

}  // namespace attend::kernel_ladder
