// The version of the library, as numbers and as text.
//
// ```cpp
// static_assert(ATTEND_VERSION_MAJOR == 0);
// assert(attend::version() == "0.1.0");
// ```
#pragma once

#include <string_view>

#define ATTEND_VERSION_MAJOR 0
#define ATTEND_VERSION_MINOR 1
#define ATTEND_VERSION_PATCH 0

namespace attend {

/// "major.minor.patch" of the compiled library.
std::string_view version() noexcept;

}  // namespace attend
