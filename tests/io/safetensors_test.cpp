#include "support.hpp"

namespace attend::test {
namespace {

using safetensors_file = in_folder;

const std::vector<float> four{1, 2, 3, 4};
const std::string data = bytes_of(four) + bytes_of(std::vector<double>{0.5});

std::string entry(const std::string& begin, const std::string& end, const std::string& shape = "[4]",
                  const std::string& type = "F32") {
  return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" + begin + "," + end + "]}";
}

std::string header(const std::string& q = entry("0", "16"), const std::string& more = "") {
  return R"({"q":)" + q + R"(,"v":)" + entry("16", "24", "[]", "F64") + more + "}";
}

TEST_F(safetensors_file, of_any_valid_form_is_read) {
  const std::string escaped = header().replace(header().find("\"q\""), 3, "\"\\u0071\"");
  for (const std::string& text :
       {header(), header() + "   ", escaped, header(entry("0", "16"), R"(,"__metadata__":{"format":"pt","other":"x"})"),
        header(entry("0", "16"), R"(,"none":)" + entry("24", "24", "[0,7]")),
        header(entry("0", "16"), R"(,"none":)" + entry("16", "16", "[0,7]", "BF16"))}) {
    const io::archive file(write("x.safetensors", safetensors(text, data)));
    EXPECT_EQ(elements<float>(file.load("q").view()), four) << text;
    EXPECT_EQ(elements<double>(file.load("v").view()), (std::vector<double>{0.5}));
    EXPECT_EQ(file.load("v").shape(), extents{});
  }
}

TEST_F(safetensors_file, names_halves_of_both_kinds) {
  std::vector<float16> narrow;
  std::vector<bfloat16> wide;
  for (const int x : {1, -2, 3, -4, 5, -6, 7, -8}) {
    narrow.emplace_back(x);
    wide.emplace_back(x);
  }
  const std::string tail = bytes_of(std::vector<double>{0.5});
  const io::archive f16(
      write("f16.safetensors", safetensors(header(entry("0", "16", "[2,4]", "F16")), bytes_of(narrow) + tail)));
  EXPECT_EQ(f16.describe("q").dtype, dtype::f16);
  EXPECT_EQ(elements<float16>(f16.load("q").view()), narrow);
  const io::archive bf16(
      write("bf16.safetensors", safetensors(header(entry("0", "16", "[2,4]", "BF16")), bytes_of(wide) + tail)));
  EXPECT_EQ(bf16.describe("q").dtype, dtype::bf16);
  EXPECT_EQ(elements<bfloat16>(bf16.load("q").view()), wide);
}

TEST_F(safetensors_file, may_hold_types_that_the_library_lacks) {
  const auto path = write("x.safetensors", safetensors(header(entry("0", "16", "[2,4]", "I16")), data));
  const io::archive file(path);
  EXPECT_EQ(file.describe("q").stored, "int16");
  EXPECT_EQ(file.describe("q").dtype, dtype::none);
  EXPECT_EQ(elements<double>(file.load("v").view()), (std::vector<double>{0.5})) << "which does not touch its neighbours";
  EXPECT_TRUE(names(refusal(path, "q"), path, {"q: holds int16"}));
}

TEST_F(safetensors_file, whose_places_are_wrong_is_refused_by_the_name_of_the_tensor) {
  for (const std::string& q : {entry("0", "12"),
                               entry("0", "20"),
                               entry("4", "20"),
                               entry("16", "0"),
                               entry("8", "24"),
                               entry("0", "1000000000000"),
                               entry("0", "16", "[4611686018427387907,4]"),
                               entry("0", "16", "[9223372036854775807]"),
                               entry("0", "0"),
                               entry("-16", "0"),
                               entry("0.0", "16"),
                               entry("\"0\"", "16"),
                               entry("0", "16", "[-4]"),
                               entry("0", "16", "4"),
                               entry("0", "16", "[4]", "F33"),
                               entry("0,16", "16"),
                               entry("0", "18446744073709551615"),
                               entry("0", "16", "[[4]]"),
                               std::string("{}"),
                               std::string("7"),
                               std::string("null"),
                               std::string(R"({"dtype":"F32","shape":[4]})"),
                               std::string(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"),
                               std::string(R"({"dtype":{},"shape":[4],"data_offsets":[0,16]})"),
                               std::string(R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
                               std::string(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"strides":[1]})")}) {
    const auto path = write("bad.safetensors", safetensors(header(q), data));
    const std::string message = refusal(path, "q");
    EXPECT_TRUE(names(message, path, {"expected"})) << q;
    EXPECT_TRUE(message.find(": q: ") != std::string::npos || message.find(": v: ") != std::string::npos) << message;
  }
}

TEST_F(safetensors_file, whose_header_is_wrong_is_refused) {
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += R"({"a":)";
  const std::string nul = header().replace(header().find("\"q\""), 3, "\"q\\u0000\"");
  for (const std::string& bytes :
       {std::string(), little(8, 8), little(1ull << 63, 8) + header() + data, little(~0ull, 8) + header() + data,
        little(0, 8) + header() + data, little(7, 8) + header() + data, safetensors("[1, 2]", data),
        safetensors("{'q': 1}", data), safetensors(" " + header(), data), safetensors(deep, data), safetensors(nul, data),
        safetensors(header(), data + "x"), safetensors(header(), data.substr(0, 23)), safetensors(header() + "{}", data),
        safetensors(header(entry("0", "16"), ",\"q\":" + entry("0", "16")), data), safetensors("{\"\xff\": 1}", data),
        safetensors(header(entry("0", "16"), R"(,"__metadata__":{"a":"x","a":"y"})"), data),
        safetensors(header(entry("0", "16"), R"(,"__metadata__":{"a":1})"), data),
        safetensors(header(entry("0", "16"), R"(,"__metadata__":{},"__metadata__":{})"), data)}) {
    const auto path = write("bad.safetensors", bytes);
    EXPECT_TRUE(names(refusal(path, "q"), path, {"expected"})) << bytes.substr(0, 60);
  }
}

TEST_F(safetensors_file, with_any_byte_changed_is_read_or_refused_in_one_line) {
  const std::string good = safetensors(header(), data);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x29);
    const auto path = write("changed.safetensors", bytes);
    const std::string message = refusal(path, "q");
    EXPECT_TRUE(message.empty() || names(message, path, {})) << at;
  }
}

}  // namespace
}  // namespace attend::test
