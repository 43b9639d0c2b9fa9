// The .npy header, wherever it stands: at the start of a file, or of a member of an .npz.
#pragma once

#include <string>

#include "reader.hpp"

namespace attend::io::detail {

/// Reads a header through `next`, of which `available` bytes exist. Returns its length in bytes, and the header in `header`.
std::uint64_t read_npy_header(const std::filesystem::path& path, const std::string& member, std::uint64_t available,
                              const fetch& next, raw_elements raw, tensor_header& header);

/// Checks that elements of `header` take exactly `available` bytes.
void check_npy_size(const std::filesystem::path& path, const std::string& member, const tensor_header& header,
                    std::uint64_t available);

/// The header of a row-major array, magic and padding included.
std::string npy_header(const array_view& view);

}  // namespace attend::io::detail
