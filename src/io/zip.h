// The directory of a zip archive whose entries are stored as they are: names and the bytes of each, viewed where they
// lie. Nothing is decompressed; what is compressed or encrypted is an error. Zip64 is understood.
//
//   | local header, name, extra | data | … | central directory | [zip64 end, locator] | end of directory |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

struct ZipEntry {
  std::string_view name;
  std::span<const std::byte> bytes;
  uint32_t crc32 = 0;
};

// Checks that the entries lie apart from one another and in front of the directory, that no name comes twice and that
// both headers of each entry agree. Throws Error(invalid) that names `where`. CRCs are not checked.
std::vector<ZipEntry> read_zip(std::span<const std::byte> file, const std::string& where);

}  // namespace lamina
