// Pictures as self-contained SVG: panels side by side, each a heat map, a photograph or bars.
//
// Colours serve light and dark pages and do not rest on red against green: blue is below 0, orange above, grey is text.
#pragma once

#include <attend/attend.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ladder {

/// A drawing in a square of `panel_size`, with a title above and a line of explanation below.
struct panel {
  std::string title, note, drawing;
};

inline constexpr double panel_size = 240;

namespace detail {

using colour = std::array<int, 3>;

inline std::string hex(const colour& c) {
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", c[0] & 255, c[1] & 255, c[2] & 255);
  return text;
}

/// From blue at -1 over almost white at 0 to orange at 1, in 33 steps.
inline colour diverging(double x) {
  constexpr colour below{33, 102, 172}, zero{247, 247, 247}, above{196, 98, 0};
  const colour& end = x < 0 ? below : above;
  const double part = std::round(std::min(std::abs(x), 1.0) * 16) / 16;
  colour c{};
  for (std::size_t i = 0; i < 3; ++i) c[i] = static_cast<int>(std::lround(zero[i] + part * (end[i] - zero[i])));
  return c;
}

inline std::string number(double x, const char* format = "%.3g") {
  char text[32];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

/// Text as XML.
inline std::string escaped(const std::string& text) {
  std::string xml;
  for (const char c : text) xml += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return xml;
}

inline std::string text_at(double x, double y, const std::string& text, const char* more = "") {
  return "<text x=\"" + number(x, "%.1f") + "\" y=\"" + number(y, "%.1f") + "\"" + more + ">" + escaped(text) + "</text>\n";
}

/// Cells of a colour each: one path per colour, made of runs along the rows. Cells without a colour stay open.
template <class Colour>
std::string cells(std::int64_t rows, std::int64_t columns, Colour at) {
  std::map<std::string, std::string> paths;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns;) {
      const std::string shade = at(r, c);
      const std::int64_t first = c;
      while (c < columns && at(r, c) == shade) ++c;
      const auto run = "M" + std::to_string(first) + " " + std::to_string(r) + ".5h" + std::to_string(c - first);
      if (!shade.empty()) paths[shade] += run;
    }
  }
  const double cell = panel_size / static_cast<double>(std::max({rows, columns, std::int64_t{1}}));
  std::string svg = "<g transform=\"scale(" + number(cell, "%.5g") + ")\" fill=\"none\" shape-rendering=\"crispEdges\">\n";
  for (const auto& [shade, path] : paths) svg += "<path stroke=\"" + shade + "\" d=\"" + path + "\"/>\n";
  svg += "</g>\n<rect width=\"" + number(cell * static_cast<double>(columns), "%.5g") + "\" height=\"" +
         number(cell * static_cast<double>(rows), "%.5g") + "\" class=\"frame\"/>\n";
  return svg;
}

}  // namespace detail

/// Numbers as colours, white at 0; a NaN is left open, for what does not take part. `rows` and `columns` lay the numbers out.
inline panel heat_map(const std::string& title, const attend::tensor<double>& x, std::int64_t rows, std::int64_t columns) {
  double low = 0, high = 0;
  for (const double number : x) low = std::min(low, std::isnan(number) ? low : number);
  for (const double number : x) high = std::max(high, std::isnan(number) ? high : number);
  const double largest = std::max({-low, high, 1e-300});
  const auto at = [&](std::int64_t r, std::int64_t c) {
    const double number = x.data()[r * columns + c];
    return std::isnan(number) ? std::string() : detail::hex(detail::diverging(number / largest));
  };
  const std::string size = std::to_string(rows) + " × " + std::to_string(columns);
  return {title, size + ", from " + detail::number(low) + " to " + detail::number(high), detail::cells(rows, columns, at)};
}

/// A matrix as it is.
inline panel heat_map(const std::string& title, const attend::tensor<double>& x) {
  return heat_map(title, x, x.shape()[0], x.shape().rank() > 1 ? x.shape()[1] : 1);
}

/// Cells of one number (grey) or three (red, green, blue) from 0 to 1, row by row.
inline panel photograph(const std::string& title, const attend::tensor<double>& x, std::int64_t rows, std::int64_t columns) {
  const std::int64_t channels = x.size() / (rows * columns);
  const auto at = [&](std::int64_t r, std::int64_t c) {
    detail::colour shade{};
    for (std::int64_t i = 0; i < 3; ++i) {
      const double number = x.data()[(r * columns + c) * channels + (channels == 3 ? i : 0)];
      shade[static_cast<std::size_t>(i)] = static_cast<int>(std::lround(std::clamp(number, 0.0, 1.0) * 15)) * 17;
    }
    return detail::hex(shade);
  };
  return {title, std::to_string(rows) + " × " + std::to_string(columns) + " cells", detail::cells(rows, columns, at)};
}

/// Groups of bars, one per label; bars of a group are the rows of `values` (series, labels), named in `series`.
inline panel bars(const std::string& title, const std::vector<std::string>& labels, const attend::tensor<double>& values,
                  const std::vector<std::string>& series = {}) {
  constexpr std::array colours{"#d97706", "#4389c8"};
  const auto groups = static_cast<std::int64_t>(labels.size()), n = values.size() / groups;
  const double low = std::min(0.0, *std::min_element(values.begin(), values.end()));
  const double high = std::max({0.0, *std::max_element(values.begin(), values.end()), low + 1e-300});
  const double height = panel_size - 36, group = panel_size / static_cast<double>(groups),
               bar = 0.8 * group / static_cast<double>(n);
  const auto y = [&](double value) { return 18 + height * (high - value) / (high - low); };
  panel drawn{title, "from " + detail::number(low) + " to " + detail::number(high), ""};
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t s = 0; s < n; ++s) {
      const double value = values.data()[s * groups + g],
                   left = group * (static_cast<double>(g) + 0.1) + bar * static_cast<double>(s);
      drawn.drawing += "<rect x=\"" + detail::number(left, "%.1f") + "\" y=\"" +
                       detail::number(y(std::max(value, 0.0)), "%.1f") + "\" width=\"" + detail::number(bar * 0.9, "%.1f") +
                       "\" height=\"" + detail::number(std::abs(y(0) - y(value)), "%.1f") + "\" fill=\"" +
                       colours[static_cast<std::size_t>(s) % colours.size()] + "\"/>\n";
    }
    drawn.drawing += detail::text_at(group * (static_cast<double>(g) + 0.5), panel_size - 4,
                                     labels[static_cast<std::size_t>(g)], " text-anchor=\"middle\"");
  }
  drawn.drawing += "<path class=\"frame\" d=\"M0 " + detail::number(y(0), "%.1f") + "h" + detail::number(panel_size) + "\"/>\n";
  for (std::size_t s = 0; s < series.size(); ++s)
    drawn.note += std::string(s == 0 ? "; " : ", ") + (s % 2 == 0 ? "orange: " : "blue: ") + series[s];
  return drawn;
}

/// Panels side by side: up to five in one row, else four.
inline void write_picture(const std::string& path, const std::vector<panel>& panels) {
  constexpr double margin = 24, top = 34, bottom = 30, across = panel_size + margin, down = top + panel_size + bottom;
  const std::size_t in_a_row = panels.size() <= 5 ? 5 : 4;
  std::string titles, body;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double left = margin + static_cast<double>(i % in_a_row) * across,
                 above = static_cast<double>(i / in_a_row) * down + top;
    titles += (i == 0 ? "" : "; ") + detail::escaped(panels[i].title);
    body += detail::text_at(left, above - 12, panels[i].title) +
            detail::text_at(left, above + panel_size + 19, panels[i].note) + "<g transform=\"translate(" +
            detail::number(left, "%.0f") + " " + detail::number(above, "%.0f") + ")\">\n" + panels[i].drawing + "</g>\n";
  }
  const double width = margin + static_cast<double>(std::min(panels.size(), in_a_row)) * across;
  const double height = static_cast<double>((panels.size() + in_a_row - 1) / in_a_row) * down;
  std::ofstream file(path);
  file << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << " " << height << "\" width=\"" << width
       << "\" height=\"" << height << "\" role=\"img\">\n<title>" << titles << "</title>\n"
       << "<style>text{font:12px system-ui,sans-serif;fill:#767676}.frame{fill:none;stroke:#767676}</style>\n"
       << body << "</svg>\n";
  if (!file.flush()) throw std::runtime_error(path + ": could not be written");
}

}  // namespace ladder
