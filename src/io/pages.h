// Memory of mapped files given back while they are read through, so that a process grows with its window and not with
// the file.
#pragma once

#include <cstddef>
#include <span>

#include "base/file_map.h"

namespace lamina {

// The pages that lie wholly inside `part` of the map leave this process; touching them reads the file again.
void drop_pages(const FileMap& map, std::span<const std::byte> part) noexcept;

}  // namespace lamina
