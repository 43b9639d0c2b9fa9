#include "support.hpp"

namespace attend::test {
namespace {

using npy_file = in_folder;

const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
const std::vector<float> six{1, 2, 3, 4, 5, 6};
const std::vector<float16> halves{float16(1.5), float16(-65504), float16::from_bits(1)};

TEST_F(npy_file, of_every_version_is_read) {
  for (const int version : {1, 2, 3}) {
    const auto path = write("x.npy", npy(good, bytes_of(six), version));
    const io::array x = io::archive(path).load("x");
    EXPECT_EQ(x.dtype(), dtype::f32);
    EXPECT_EQ(x.shape(), (extents{2, 3}));
    EXPECT_EQ(elements<float>(x.view()), six);
  }
}

TEST_F(npy_file, header_is_parsed_and_not_matched) {
  for (const char* header : {"{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                             "{ 'descr' : '<f4' , 'shape' : ( 2 , 3 , ) ,'fortran_order':False,}  \n",
                             "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2L, 3L), }",
                             "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3)}"}) {
    EXPECT_EQ(elements<float>(io::archive(write("x.npy", npy(header, bytes_of(six)))).load("x").view()), six) << header;
  }
}

TEST_F(npy_file, in_fortran_order_keeps_its_meaning_as_strides) {
  const auto path = write("x.npy", npy_of("<f4", "(2, 3)", bytes_of(std::vector<float>{1, 4, 2, 5, 3, 6}), true));
  const io::array x = io::archive(path).load("x");
  EXPECT_EQ(x.view().strides, (extents{1, 2}));
  EXPECT_EQ(elements<float>(x.view()), six);
}

TEST_F(npy_file, gives_every_element_type_of_the_library) {
  EXPECT_EQ(elements<double>(
                io::archive(write("x.npy", npy_of("<f8", "(2,)", bytes_of(std::vector<double>{1.5, -2})))).load("x").view()),
            (std::vector<double>{1.5, -2}));
  EXPECT_EQ(
      elements<std::int64_t>(
          io::archive(write("x.npy", npy_of("<i8", "(1,)", bytes_of(std::vector<std::int64_t>{1LL << 40})))).load("x").view()),
      (std::vector<std::int64_t>{1LL << 40}));
  const io::array narrow =
      io::archive(write("x.npy", npy_of("<i4", "(3,)", bytes_of(std::vector<std::int32_t>{-1, 7, 1 << 30})))).load("x");
  EXPECT_EQ(narrow.dtype(), dtype::i64);
  EXPECT_EQ(elements<std::int64_t>(narrow.view()), (std::vector<std::int64_t>{-1, 7, 1 << 30}));
  const io::array half = io::archive(write("x.npy", npy_of("<f2", "(3,)", bytes_of(halves)))).load("x");
  EXPECT_EQ(half.dtype(), dtype::f16);
  EXPECT_EQ(elements<float16>(half.view()), halves);
  const io::array flags = io::archive(write("x.npy", npy_of("|b1", "(4,)", std::string("\0\1\0\xff", 4)))).load("x");
  EXPECT_EQ(flags.dtype(), dtype::boolean);
  EXPECT_EQ(elements<std::uint8_t>(flags.view()), (std::vector<std::uint8_t>{0, 1, 0, 1}));
}

TEST_F(npy_file, in_big_endian_order_is_swapped) {
  EXPECT_EQ(
      elements<float>(io::archive(write("x.npy", npy_of(">f4", "(1,)", std::string("\x3f\xc0\0\0", 4)))).load("x").view()),
      (std::vector<float>{1.5f}));
  EXPECT_EQ(
      elements<std::int64_t>(
          io::archive(write("x.npy", npy_of(">i4", "(2,)", std::string("\0\0\1\0\xff\xff\xff\xfe", 8)))).load("x").view()),
      (std::vector<std::int64_t>{256, -2}));
  EXPECT_EQ(
      elements<float16>(io::archive(write("x.npy", npy_of(">f2", "(2,)", std::string("\x3e\0\0\1", 4)))).load("x").view()),
      (std::vector<float16>{float16(1.5), float16::from_bits(1)}));
}

TEST_F(npy_file, of_raw_elements_holds_bfloat16_where_that_is_said) {
  const std::vector<bfloat16> values{bfloat16(1.5), bfloat16(-3e38)};
  for (const char* descr : {"|V2", "<V2", "V2"}) {
    const auto path = write("x.npy", npy_of(descr, "(2,)", bytes_of(values)));
    const io::archive file(path, io::raw_elements::bfloat16);
    EXPECT_EQ(file.describe("x").dtype, dtype::bf16);
    EXPECT_EQ(file.describe("x").stored, "bfloat16");
    EXPECT_EQ(elements<bfloat16>(file.load("x").view()), values) << descr;
    EXPECT_EQ(io::archive(path).describe("x").dtype, dtype::none);
    EXPECT_TRUE(names(refusal(path, "x"), path, {"holds raw 2-byte elements", "--dtype bfloat16"}));
  }
  const auto turned = write("x.npy", npy_of(">V2", "(1,)", "\x3f\xc0"));
  EXPECT_EQ(elements<bfloat16>(io::archive(turned, io::raw_elements::bfloat16).load("x").view()),
            (std::vector<bfloat16>{bfloat16(1.5)}));
}

TEST_F(npy_file, with_a_type_of_its_own_is_not_what_is_said_of_raw_elements) {
  EXPECT_EQ(io::archive(write("x.npy", npy_of("<f2", "(3,)", bytes_of(halves))), io::raw_elements::bfloat16).load("x").dtype(),
            dtype::f16);
  EXPECT_THROW(io::archive(write("x.npy", npy_of("|V4", "(1,)", "abcd")), io::raw_elements::bfloat16), io::error);
  EXPECT_THROW(io::archive(write("x.npy", npy_of("|V2", "(2,)", "abc")), io::raw_elements::bfloat16), io::error);
}

TEST_F(npy_file, of_rank_0_and_without_elements_is_read) {
  EXPECT_EQ(
      elements<float>(io::archive(write("x.npy", npy_of("<f4", "()", bytes_of(std::vector<float>{2.5f})))).load("x").view()),
      (std::vector<float>{2.5f}));
  const io::array none = io::archive(write("x.npy", npy_of("<f4", "(0, 3)", ""))).load("x");
  EXPECT_EQ(none.shape(), (extents{0, 3}));
  EXPECT_TRUE(none.view());
}

TEST_F(npy_file, whose_header_is_wrong_is_refused) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string header = good;
    return header.replace(header.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> faults{
      {with("(2, 3)", "(4294967296, 4294967296)"), "more elements than can be addressed"},
      {with("(2, 3)", "(9223372036854775808, 1)"), "whole numbers"},
      {with("(2, 3)", "(-2, -3)"), "whole numbers"},
      {with("(2, 3)", "(2, 3"), "shape"},
      {with("(2, 3)", "(6)"), "a tuple"},
      {with("(2, 3)", "(2 3)"), "','"},
      {with("}", ""), "a key in quotes"},
      {with("}", "} x"), "blanks alone"},
      {with("'<f4'", "[('a', '<f4')]"), "structured"},
      {with("<f4", "<f3"), "'<f3'"},
      {with("<f4", ""), "descr ''"},
      {with("False", "0"), "True or False"},
      {with("'descr': '<f4', ", ""), "no 'descr'"},
      {with("'shape': (2, 3), ", ""), "no 'shape'"},
      {with("'shape': (2, 3)", "'shape': (2, 3), 'shape': (2, 3)"), "'shape' twice"},
      {with("'shape': (2, 3)", "'shape': (2, 3), 'more': (2, 3)"), "'more'"},
      {with("'descr'", "'de\\\\scr'"), "without escapes"},
      {std::string("{'descr': '\n\x1b[31m', }"), "\\x0a\\x1b"},
  };
  for (const auto& [header, word] : faults) {
    const auto path = write("bad.npy", npy(header, bytes_of(six)));
    EXPECT_TRUE(names(refusal(path, "bad"), path, {"header", word})) << header;
  }
}

TEST_F(npy_file, whose_sizes_do_not_fit_is_refused) {
  const std::string data = bytes_of(six);
  for (const std::string& bytes : {std::string(), std::string("\x93NUMPY"), std::string("\x93NUMPY\1\0\xff\xff", 10),
                                   std::string("\x93NUMPY\2\0\xf0\xff\xff\xff", 12), npy(good, data.substr(1)),
                                   npy(good, data + '\0'), npy(good, data, 9), std::string("PK\5\6") + std::string(18, '\0')}) {
    const auto path = write("bad.npy", bytes);
    EXPECT_TRUE(names(refusal(path, "bad"), path, {"expected"}));
  }
}

TEST_F(npy_file, of_another_element_type_is_described_and_refused_by_its_name) {
  for (const auto& [descr, name] :
       {std::pair{"<i2", "int16"}, {"<V2", "raw 2-byte elements"}, {"|u1", "uint8"}, {"|O", "objects"}}) {
    const auto path = write("x.npy", npy_of(descr, "(2,)", "abcd"));
    EXPECT_EQ(io::archive(path).describe("x").dtype, dtype::none);
    EXPECT_TRUE(names(refusal(path, "x"), path, {name, "expected float32"}));
  }
}

TEST_F(npy_file, of_more_axes_than_the_library_has_is_refused) {
  const auto path = write("x.npy", npy_of("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", "abcd"));
  EXPECT_EQ(io::archive(path).describe("x").shape.size(), 9u);
  EXPECT_TRUE(names(refusal(path, "x"), path, {"at most 8 axes"}));
}

TEST_F(npy_file, that_is_missing_or_no_regular_file_is_refused_at_once) {
  EXPECT_TRUE(names(refusal(folder / "none.npy", "none"), folder / "none.npy", {"cannot be opened"}));
  fs::create_directory(folder / "folder.npy");
  EXPECT_TRUE(names(refusal(folder / "folder.npy", "folder"), folder / "folder.npy", {"not a regular file"}));
  EXPECT_TRUE(names(refusal(write("x.txt", "text"), "x"), folder / "x.txt", {"unknown format"}));
}

TEST_F(npy_file, without_its_extension_is_known_by_its_first_bytes) {
  EXPECT_EQ(elements<float>(io::archive(write("data", npy(good, bytes_of(six)))).load("data").view()), six);
}

}  // namespace
}  // namespace attend::test
