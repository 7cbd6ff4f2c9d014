#include "io/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace lamina {

void drop_pages(const FileMap& map, std::span<const std::byte> part) noexcept {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p); };
  // Never beyond the map: elsewhere the same call would erase memory.
  const uintptr_t low = std::max(address(part.data()), address(map.bytes().data()));
  const uintptr_t high = std::min(address(part.data() + part.size()), address(map.bytes().data() + map.bytes().size()));
  const uintptr_t begin = (low + page - 1) / page * page, end = high / page * page;
  if (begin >= end) return;
  auto* first = const_cast<std::byte*>(map.bytes().data()) + (begin - address(map.bytes().data()));
  ::madvise(first, end - begin, MADV_DONTNEED);
}

}  // namespace lamina
