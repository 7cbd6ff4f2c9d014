// Looks at folders without mistaking what cannot be read for what is not there.
#pragma once

#include <string>
#include <vector>

namespace lamina {

// Throws Error(io) where the system does not say, as with a folder above it that may not be entered.
bool path_exists(const std::string& path);

// The names in a folder, sorted; none where it is not there. Throws Error(io) where it cannot be read.
std::vector<std::string> list_folder(const std::string& path);

}  // namespace lamina
