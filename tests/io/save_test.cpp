#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "support.hpp"

namespace attend::test {
namespace {

class saved_file : public in_folder {
 protected:
  saved_file() {
    for (std::int64_t i = 0; i < 12; ++i) x.data()[i] = static_cast<float>(i);
  }

  /// What saving is refused with; empty where nothing is.
  static std::string save_refusal(const fs::path& path, const std::vector<io::named_array>& tensors) {
    try {
      io::save(path, tensors);
    } catch (const io::error& fault) {
      return fault.what();
    }
    return "";
  }

  tensor<float> x{{3, 4}};
};

TEST_F(saved_file, gives_back_every_type_and_shape_in_every_format) {
  const tensor<double> wide({2, 0, 3}), scalar(extents{}, 4.0);
  const tensor<std::int64_t> numbers({2}, -5);
  const tensor<bool> flags({3}, true);
  for (const char* name : {"x.npz", "x.safetensors", "X.NPZ"}) {
    io::save(folder / name, {{"flags", flags}, {"x", x}, {"wide", wide}, {"scalar", scalar}, {"numbers", numbers}});
    const io::archive file(folder / name);
    EXPECT_EQ(file.names().size(), 5u);
    EXPECT_EQ(elements<float>(file.load("x").view()), std::vector<float>(x.begin(), x.end()));
    EXPECT_EQ(file.load("wide").shape(), wide.shape());
    EXPECT_EQ(elements<double>(file.load("scalar").view()), std::vector<double>{4.0});
    EXPECT_EQ(elements<std::int64_t>(file.load("numbers").view()), (std::vector<std::int64_t>{-5, -5}));
    EXPECT_EQ(elements<bool>(file.load("flags").view()), (std::vector<bool>{true, true, true}));
  }
  io::save(folder / "x.npy", {{"any", x}});
  EXPECT_EQ(elements<float>(io::archive(folder / "x.npy").load("x").view()), std::vector<float>(x.begin(), x.end()));
  EXPECT_EQ(read(folder / "x.npy").size(), 128u + 48u) << "elements begin at a multiple of 64";
}

TEST_F(saved_file, gives_back_halves_in_every_format) {
  tensor<float16> narrow({2, 3});
  tensor<bfloat16> wide({3, 2});
  for (std::int64_t i = 0; i < 6; ++i) {
    narrow.data()[i] = float16::from_bits(static_cast<std::uint16_t>(1 + 2000 * i));
    wide.data()[i] = bfloat16::from_bits(static_cast<std::uint16_t>(1 + 5000 * i));
  }
  const tensor_view<bfloat16> turned(wide.data() + 5, {2, 3}, {-1, -2});
  for (const char* name : {"x.npz", "x.safetensors"}) {
    io::save(folder / name, {{"turned", turned}, {"wide", wide}, {"narrow", narrow}});
    const io::archive file(folder / name, io::raw_elements::bfloat16);
    EXPECT_EQ(elements<float16>(file.load("narrow").view()), std::vector<float16>(narrow.begin(), narrow.end()));
    EXPECT_EQ(elements<bfloat16>(file.load("wide").view()), std::vector<bfloat16>(wide.begin(), wide.end()));
    EXPECT_EQ(elements<bfloat16>(file.load("turned").view()), elements<bfloat16>(turned));
  }
  io::save(folder / "wide.npy", {{"any", wide}});
  EXPECT_NE(read(folder / "wide.npy").find("'descr': '|V2', 'fortran_order': False, 'shape': (3, 2)"), std::string::npos);
  EXPECT_EQ(elements<bfloat16>(io::archive(folder / "wide.npy", io::raw_elements::bfloat16).load("wide").view()),
            std::vector<bfloat16>(wide.begin(), wide.end()));
  io::save(folder / "narrow.npy", {{"any", narrow}});
  EXPECT_EQ(elements<float16>(io::archive(folder / "narrow.npy").load("narrow").view()),
            std::vector<float16>(narrow.begin(), narrow.end()));
  EXPECT_TRUE(names(refusal(folder / "x.npz", "wide"), folder / "x.npz", {"wide: holds raw 2-byte elements"}));
}

TEST_F(saved_file, holds_a_strided_view_in_row_major_order) {
  const tensor_view<float> turned(x.data() + 11, {4, 3}, {-1, -4});
  for (const char* name : {"x.npy", "x.npz", "x.safetensors"}) {
    io::save(folder / name, {{"x", turned}});
    const io::array again = io::archive(folder / name).load("x");
    EXPECT_EQ(elements<float>(again.view()), elements<float>(turned));
    EXPECT_EQ(again.view().strides, (extents{3, 1}));
  }
}

TEST_F(saved_file, replaces_its_predecessor_and_keeps_its_permissions_and_links) {
  write("x.npy", "old");
  ::chmod((folder / "x.npy").c_str(), 0640);
  fs::create_symlink(folder / "x.npy", folder / "link.npy");
  io::save(folder / "link.npy", {{"x", x}});
  EXPECT_TRUE(fs::is_symlink(folder / "link.npy"));
  EXPECT_EQ(io::archive(folder / "x.npy").load("x").shape(), x.shape());
  struct stat status{};
  ASSERT_EQ(::stat((folder / "x.npy").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0640u);
  EXPECT_EQ(listing(), (std::vector<std::string>{"link.npy", "x.npy"}));
}

TEST_F(saved_file, is_refused_before_anything_is_written) {
  const auto refuses = [&](const char* name, const std::vector<io::named_array>& tensors, const char* word) {
    const std::vector<std::string> before = listing();
    EXPECT_TRUE(names(save_refusal(folder / name, tensors), folder / name, {word}));
    EXPECT_EQ(listing(), before);
  };
  refuses("x.txt", {{"x", x}}, "expected .npy, .npz or .safetensors");
  refuses("x", {{"x", x}}, "expected .npy, .npz or .safetensors");
  refuses("none/x.npy", {{"x", x}}, "writable folder");
  refuses("x.npy", {{"x", x}, {"y", x}}, "exactly one");
  refuses("x.npz", {{"x", x}, {"x", x}}, "twice");
  refuses("x.npz", {{"", x}}, "not a name");
  refuses("x.safetensors", {{"__metadata__", x}}, "not a name");
  refuses("x.safetensors", {{"x", {}}}, "no array");
  fs::create_directory(folder / "folder.npy");
  refuses("folder.npy", {{"x", x}}, "not a regular file");
}

TEST_F(saved_file, that_fails_half_way_leaves_the_old_one_and_nothing_else) {
  if (::geteuid() != 0) {
    // Root may write anywhere; everybody else may not write here.
    fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
    for (const char* name : {"x.npy", "x.npz", "x.safetensors"})
      EXPECT_TRUE(names(save_refusal(folder / name, {{"x", x}}), folder / name, {"expected a writable folder"}));
    fs::permissions(folder, fs::perms::owner_all);
  }
  // A limit on the size of files takes the place of a full disk.
  struct rlimit_guard {
    rlimit_guard() {
      ::getrlimit(RLIMIT_FSIZE, &before);
      struct rlimit small = before;
      small.rlim_cur = 4096;
      ::setrlimit(RLIMIT_FSIZE, &small);
      handler = ::signal(SIGXFSZ, SIG_IGN);
    }
    ~rlimit_guard() {
      ::setrlimit(RLIMIT_FSIZE, &before);
      ::signal(SIGXFSZ, handler);
    }
    struct rlimit before{};
    void (*handler)(int) = nullptr;
  };
  const tensor<float> large({64, 64}, 1.0f);
  for (const char* name : {"x.npy", "x.npz", "x.safetensors"}) {
    write(name, "old");
    std::string message;
    {
      const rlimit_guard full;
      message = save_refusal(folder / name, {{"x", large}});
    }
    EXPECT_TRUE(names(message, folder / name, {"cannot be written"}));
    EXPECT_EQ(read(folder / name), "old");
  }
  EXPECT_EQ(listing(), (std::vector<std::string>{"x.npy", "x.npz", "x.safetensors"}));
}

}  // namespace
}  // namespace attend::test
