#include "support.hpp"

namespace attend::test {
namespace {

class npz_file : public in_folder {
 protected:
  npz_file() {
    for (std::int64_t i = 0; i < 6; ++i) x.data()[i] = static_cast<float>(i) + 0.5f;
    io::save(folder / "x.npz", {{"q", x}, {"v", y}});
    stored = read(folder / "x.npz");
  }

  /// The archive with a field of the member's directory entry (and of its local header) changed.
  std::string patched(const std::string& member, std::size_t local, std::size_t central, std::uint64_t value) const {
    std::string bytes = stored;
    const std::size_t first = bytes.find(member) - 30, entry = bytes.rfind(member) - 46;
    bytes.replace(first + local, 4, little(value, 4));
    return bytes.replace(entry + central, 4, little(value, 4));
  }

  tensor<float> x{{2, 3}};
  tensor<double> y{{4}, 0.25};
  std::string stored;
};

TEST_F(npz_file, gives_back_what_was_saved) {
  const io::archive file(folder / "x.npz");
  EXPECT_EQ(file.format(), io::format::npz);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"q", "v"}));
  EXPECT_EQ(file.describe("v").shape, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(elements<float>(file.load("q").view()), (std::vector<float>{0.5, 1.5, 2.5, 3.5, 4.5, 5.5}));
  EXPECT_EQ(elements<double>(file.load("v").view()), (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(file.load("v").dtype(), dtype::f64) << "a member may be loaded again";
}

TEST_F(npz_file, is_the_same_bytes_for_the_same_tensors) {
  io::save(folder / "again.npz", {{"q", x}, {"v", y}});
  EXPECT_EQ(read(folder / "again.npz"), stored);
}

TEST_F(npz_file, without_the_tensor_is_refused_by_its_name) {
  EXPECT_TRUE(names(refusal(folder / "x.npz", "k"), folder / "x.npz", {"k: no such tensor", "q, v"}));
  const auto empty = write("empty.npz", std::string("PK\5\6") + std::string(18, '\0'));
  EXPECT_TRUE(names(refusal(empty, "q"), empty, {"q: no such tensor"}));
}

TEST_F(npz_file, that_is_damaged_is_refused_by_the_name_of_the_member) {
  constexpr std::size_t crc[] = {14, 16}, packed[] = {18, 20}, size[] = {22, 24};
  for (const std::string& bytes : {patched("v.npy", crc[0], crc[1], 1), patched("v.npy", size[0], size[1], 1u << 31),
                                   patched("v.npy", packed[0], packed[1], 1u << 31), patched("v.npy", size[0], size[1], 20),
                                   patched("v.npy", packed[0], packed[1], 3)}) {
    const auto path = write("bad.npz", bytes);
    EXPECT_TRUE(names(refusal(path, "v"), path, {"v: ", "expected"}));
  }
  std::string flipped = stored;
  flipped[flipped.find("v.npy") + 5 + 128] ^= 1;
  EXPECT_TRUE(names(refusal(write("bad.npz", flipped), "v"), folder / "bad.npz", {"v: damaged"}));
}

TEST_F(npz_file, that_is_damaged_elsewhere_still_gives_its_intact_members) {
  const auto path = write("bad.npz", patched("v.npy", 14, 16, 1));
  EXPECT_EQ(elements<float>(io::archive(path).load("q").view()).size(), 6u);
}

TEST_F(npz_file, with_two_members_of_one_name_is_refused) {
  std::string twice = stored;
  for (std::size_t at = twice.find("v.npy"); at != std::string::npos; at = twice.find("v.npy")) twice[at] = 'q';
  const auto path = write("bad.npz", twice);
  EXPECT_TRUE(names(refusal(path, "q"), path, {"q: two members"}));
}

TEST_F(npz_file, cut_anywhere_is_refused_and_reads_nothing_outside) {
  for (std::size_t length = 0; length < stored.size(); length += 7) {
    const auto path = write("cut.npz", stored.substr(0, length));
    EXPECT_TRUE(names(refusal(path, "v"), path, {"expected"})) << length;
  }
}

TEST_F(npz_file, with_any_byte_changed_is_read_or_refused_in_one_line) {
  for (std::size_t at = 0; at < stored.size(); ++at) {
    std::string bytes = stored;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    const auto path = write("changed.npz", bytes);
    const std::string message = refusal(path, "v");
    EXPECT_TRUE(message.empty() || names(message, path, {})) << at;
  }
}

}  // namespace
}  // namespace attend::test
