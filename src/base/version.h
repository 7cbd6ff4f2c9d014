// The version of the product. CMakeLists.txt and pyproject.toml state the same one; a test compares them.
#pragma once

namespace lamina {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace lamina
