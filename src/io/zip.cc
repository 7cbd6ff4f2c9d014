#include "io/zip.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "io/little_endian.h"
#include "io/quote.h"

namespace lamina {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kLocal = 0x04034B50, kCentral = 0x02014B50, kEnd = 0x06054B50;
constexpr uint32_t kEnd64 = 0x06064B50, kLocator64 = 0x07064B50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw_error(ErrorCode::invalid, "bad zip archive: {}: {}", where, what);
}

// Where the directory lies and how many entries it has.
struct Directory {
  uint64_t count = 0, offset = 0, size = 0;
  uint64_t end = 0;  // of what may be directory: the first record behind it
};

// The end record is the last thing in the file but for a comment of at most 64 KiB, whose length it states.
size_t find_end(Bytes file, const std::string& where) {
  for (size_t back = kEndSize; back <= file.size() && back <= kEndSize + 0xFFFF; ++back) {
    const size_t at = file.size() - back;
    if (read_le<uint32_t>(file, at) == kEnd && read_le<uint16_t>(file, at + 20) == back - kEndSize) return at;
  }
  fail(where, fmt::format("truncated: expected the directory at its end, got none in {} bytes", file.size()));
}

Directory find_directory(Bytes file, const std::string& where) {
  const size_t end = find_end(file, where);
  Directory out{read_le<uint16_t>(file, end + 10), read_le<uint32_t>(file, end + 16), read_le<uint32_t>(file, end + 12),
                end};
  if (end >= kLocatorSize && read_le<uint32_t>(file, end - kLocatorSize) == kLocator64) {
    const auto at = read_le<uint64_t>(file, end - kLocatorSize + 8);
    if (at > end - kLocatorSize || end - kLocatorSize - at < kEnd64Size || read_le<uint32_t>(file, at) != kEnd64)
      fail(where, fmt::format("expected a zip64 record at {}, got none", at));
    out = {read_le<uint64_t>(file, at + 32), read_le<uint64_t>(file, at + 48), read_le<uint64_t>(file, at + 40), at};
  }
  if (out.offset > out.end || out.size > out.end - out.offset || out.count > out.size / kCentralSize)
    fail(where, fmt::format("directory: expected {} entries in {} bytes at {} within the file, got a file of {}",
                            out.count, out.size, out.offset, file.size()));
  return out;
}

// An entry as the directory states it.
struct Stated {
  std::string_view name;
  uint16_t flags = 0, method = 0;
  uint32_t crc32 = 0;
  uint64_t packed = 0, size = 0, offset = 0;
};

// Sizes and places beyond 32 bits stand in the extra field with the id 1, those that are needed, in this order.
bool take_zip64(Bytes extra, Stated& entry) {
  uint64_t* const wide[] = {&entry.size, &entry.packed, &entry.offset};
  for (size_t at = 0; at + 4 <= extra.size();) {
    const size_t size = read_le<uint16_t>(extra, at + 2), next = at + 4 + size;
    if (next > extra.size()) return false;
    if (read_le<uint16_t>(extra, at) == 1) {
      size_t from = at + 4;
      for (uint64_t* value : wide) {
        if (*value != 0xFFFFFFFF) continue;
        if (from + 8 > next) return false;
        *value = read_le<uint64_t>(extra, from);
        from += 8;
      }
    }
    at = next;
  }
  return true;
}

// Reads the entry at `at` of the directory and moves on to the next.
Stated read_stated(Bytes directory, size_t& at, const std::string& where) {
  if (directory.size() - at < kCentralSize || read_le<uint32_t>(directory, at) != kCentral)
    fail(where, fmt::format("directory: expected an entry at its byte {}, got none", at));
  const size_t name = read_le<uint16_t>(directory, at + 28), extra = read_le<uint16_t>(directory, at + 30);
  const size_t size = kCentralSize + name + extra + read_le<uint16_t>(directory, at + 32);
  if (size > directory.size() - at)
    fail(where, fmt::format("directory: expected {} bytes at {}, got {}", size, at, directory.size() - at));
  Stated out{.name = as_text(directory.subspan(at + kCentralSize, name)),
             .flags = read_le<uint16_t>(directory, at + 8),
             .method = read_le<uint16_t>(directory, at + 10),
             .crc32 = read_le<uint32_t>(directory, at + 16),
             .packed = read_le<uint32_t>(directory, at + 20),
             .size = read_le<uint32_t>(directory, at + 24),
             .offset = read_le<uint32_t>(directory, at + 42)};
  if (!take_zip64(directory.subspan(at + kCentralSize + name, extra), out))
    fail(where, fmt::format("entry {}: expected a whole extra field, got a part", quote_text(out.name)));
  at += size;
  return out;
}

// The data of an entry, behind its local header.
Bytes locate(Bytes file, const Stated& entry, const std::string& where) {
  const std::string what = fmt::format("entry {}", quote_text(entry.name));
  if ((entry.flags & 1) != 0) fail(where, what + ": expected plain bytes, got encrypted ones");
  if (entry.method != 0)
    fail(where, fmt::format("{}: expected it stored, got it compressed (method {})", what, entry.method));
  if (entry.packed != entry.size)
    fail(where, fmt::format("{}: expected one size, got {} and {}", what, entry.packed, entry.size));
  if (entry.offset > file.size() || file.size() - entry.offset < kLocalSize ||
      read_le<uint32_t>(file, entry.offset) != kLocal)
    fail(where, fmt::format("{}: expected its header at {}, got none", what, entry.offset));
  const size_t name = read_le<uint16_t>(file, entry.offset + 26), extra = read_le<uint16_t>(file, entry.offset + 28);
  const uint64_t begin = entry.offset + kLocalSize + name + extra;
  if (begin > file.size() || entry.size > file.size() - begin)
    fail(where, fmt::format("{}: expected {} bytes at {}, got a file of {}", what, entry.size, begin, file.size()));
  const std::string_view local = as_text(file.subspan(entry.offset + kLocalSize, name));
  if (local != entry.name || read_le<uint16_t>(file, entry.offset + 8) != entry.method)
    fail(where, fmt::format("{}: expected the same in its own header, got {}", what, quote_text(local)));
  return file.subspan(begin, entry.size);
}

}  // namespace

std::vector<ZipEntry> read_zip(std::span<const std::byte> file, const std::string& where) {
  const Directory directory = find_directory(file, where);
  const Bytes bytes = file.subspan(directory.offset, directory.size), front = file.first(directory.offset);
  std::vector<ZipEntry> out;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // header to end of data
  std::vector<std::string_view> names;
  size_t at = 0;
  for (uint64_t i = 0; i < directory.count; ++i) {
    const Stated entry = read_stated(bytes, at, where);
    out.push_back({entry.name, locate(front, entry, where), entry.crc32});
    ranges.emplace_back(entry.offset, out.back().bytes.data() - file.data() + std::ssize(out.back().bytes));
    names.push_back(entry.name);
  }
  if (at != bytes.size())
    fail(where, fmt::format("directory: expected {} entries to end at {}, got {}", directory.count, bytes.size(), at));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(where, fmt::format("duplicate entry {}", quote_text(*twice)));
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      fail(where, fmt::format("expected entries apart, got one at {} within another that ends at {}", ranges[i].first,
                              ranges[i - 1].second));
  return out;
}

}  // namespace lamina
