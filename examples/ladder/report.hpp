// The report of a program: every comparison with its bound, and the exit code.
//
// A program is called with nothing, or with a folder for its pictures. It ends with 0 where everything agreed, else with 1.
#pragma once

#include <attend/attend.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "picture.hpp"

namespace ladder {

using attend::compatibility, attend::gaussian, attend::additive, attend::normalizer, attend::tensor, attend::tensor_view,
    attend::tensor_like;
using std::int64_t, std::to_string;
using matrix = tensor<double>;

/// Milliseconds of a call, the shortest of three.
template <class Call>
double milliseconds(Call call) {
  double best = INFINITY;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// Words and numbers as one text.
template <class... Pieces>
std::string text(const Pieces&... pieces) {
  std::ostringstream all;
  all << std::setprecision(4);
  (all << ... << pieces);
  return all.str();
}

/// A count without fraction and exponent.
inline std::string whole(double count) { return to_string(std::llround(count)); }

/// "3 x 5"
inline std::string size(int64_t rows, int64_t columns) { return to_string(rows) + " x " + to_string(columns); }

/// One program: its report, its pictures, and whether everything agreed.
class step {
 public:
  step(int argc, char** argv, const char* title) : folder_(argc > 1 ? argv[1] : "") { std::printf("%s\n\n", title); }

  /// The numbers of attention beside those of plain loops. One line for all comparisons of this name up to the next `say`: how
  /// many numbers, the pair that differs most, by how much, and the largest part of a bound that a difference takes.
  template <class Number>
  void compare(const std::string& what, const tensor<Number>& ours, const matrix& loops, const matrix& bound) {
    const auto known = std::find_if(lines_.begin(), lines_.end(), [&](const line& l) { return l.what == what; });
    line& l = known != lines_.end() ? *known : lines_.emplace_back(line{.what = what});
    if (ours.size() != loops.size() || ours.size() != bound.size()) {
      l.part = INFINITY;
      return;
    }
    for (int64_t i = 0; i < ours.size(); ++i) {
      const double mine = static_cast<double>(ours.data()[i]), theirs = loops.data()[i], difference = std::abs(mine - theirs);
      if (l.count++ == 0 || !(difference <= l.difference)) l.mine = mine, l.theirs = theirs, l.difference = difference;
      if (difference != 0) l.part = std::max(l.part, difference <= bound.data()[i] ? difference / bound.data()[i] : INFINITY);
    }
  }

  /// Whether two results are the same bits.
  template <class Number>
  void same_bits(const std::string& what, const tensor<Number>& a, const tensor<Number>& b) {
    const auto bytes = static_cast<std::size_t>(a.size()) * sizeof(Number);
    claim(a.size() == b.size() && std::memcmp(a.data(), b.data(), bytes) == 0, what, ": same bits");
  }

  /// A statement that has to be true.
  template <class... Pieces>
  void claim(bool holds, const Pieces&... pieces) {
    say("  ", pieces..., holds ? "" : ": NO");
    failed_ += !holds;
  }

  /// A line of the report.
  template <class... Pieces>
  void say(const Pieces&... pieces) {
    print_comparisons();
    std::printf("%s\n", text(pieces...).c_str());
  }

  /// What a region saves: its products, counted by the program, against all of them, and what a plan says. Tiles hold many pairs,
  /// so that a few more are computed than are needed; the claim is that they are at most this part of all tiles.
  void work(const std::string& what, double products, double all, const attend::plan_facts& plan, double part) {
    const int64_t computed = plan.tiles_full + plan.tiles_partial, tiles = computed + plan.tiles_skipped;
    claim(static_cast<double>(computed) <= part * static_cast<double>(tiles), what, ": ", whole(products), " pairs of ",
          whole(all), " (", 100 * products / all, " %); the plan computes ", computed, " tiles of ", tiles, " (",
          100 * static_cast<double>(computed) / static_cast<double>(tiles), " %), ", plan.flops / 1e6, " Mflop");
  }

  /// Writes a picture where a folder was given.
  void picture(const std::string& name, const std::vector<panel>& panels) const {
    if (!folder_.empty()) write_picture(folder_ + "/" + name + ".svg", panels);
  }

  /// The exit code, and the last line of the report.
  int result() {
    print_comparisons();
    if (failed_ > 0) say("\n", failed_, " of the lines above failed");
    return failed_ > 0 ? 1 : 0;
  }

 private:
  struct line {
    std::string what;
    int64_t count = 0;
    double mine = 0, theirs = 0, difference = 0, part = 0;
  };

  void print_comparisons() {
    if (!lines_.empty())
      std::printf("  %-42s %7s %14s %14s %18s %9s\n", "", "numbers", "attend", "loops", "largest difference", "of bound");
    for (const line& l : lines_) {
      const bool holds = l.count > 0 && l.part <= 1;
      std::printf("  %-42s %7lld %14.7g %14.7g %18.2g %7.2g %%%s\n", l.what.c_str(), static_cast<long long>(l.count), l.mine,
                  l.theirs, l.difference, 100 * l.part, holds ? "" : "  TOO LARGE");
      failed_ += !holds;
    }
    lines_.clear();
  }

  std::string folder_;
  std::vector<line> lines_;
  int failed_ = 0;
};

}  // namespace ladder
