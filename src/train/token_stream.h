// Token ids as one long sequence, wherever they lie: parts of token files and of memory, one behind the other. It owns
// no ids and checks none; whoever adds a part keeps it alive and has checked it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/token_file.h"

namespace lamina {

class TokenStream {
 public:
  void add(const TokenFile& file) { add({&file, nullptr, 0, file.size()}); }
  void add(std::span<const int32_t> ids) { add({nullptr, ids.data(), 0, static_cast<int64_t>(ids.size())}); }

  void append(const TokenStream& other) {
    for (const Part& part : other.parts_) add(part);
  }

  int64_t size() const { return size_; }

  // Copies the ids from `first` on. Allocates nothing; time grows with the number of parts, which is small.
  void read(int64_t first, std::span<int32_t> out) const {
    for (const Part& part : parts_) {
      if (out.empty()) return;
      if (first >= part.count) {
        first -= part.count;
        continue;
      }
      const auto count = static_cast<size_t>(std::min(part.count - first, static_cast<int64_t>(out.size())));
      if (part.file != nullptr)
        part.file->read(part.begin + first, out.first(count));
      else
        std::copy_n(part.ids + part.begin + first, count, out.begin());
      out = out.subspan(count);
      first = 0;
    }
  }

  // The ids [begin, end) as a stream of their own.
  TokenStream part(int64_t begin, int64_t end) const {
    TokenStream out;
    for (const Part& part : parts_) {
      const int64_t from = std::clamp<int64_t>(begin, 0, part.count), to = std::clamp<int64_t>(end, 0, part.count);
      out.add({part.file, part.ids, part.begin + from, std::max<int64_t>(to - from, 0)});
      begin -= part.count;
      end -= part.count;
    }
    return out;
  }

 private:
  struct Part {
    const TokenFile* file;  // or
    const int32_t* ids;
    int64_t begin, count;
  };

  void add(const Part& part) {
    if (part.count == 0) return;
    parts_.push_back(part);
    size_ += part.count;
  }

  std::vector<Part> parts_;
  int64_t size_ = 0;
};

// One of the streams that rows are drawn from, in proportion to their weights.
struct Source {
  std::string name;  // for messages
  TokenStream ids;
  double weight = 1.0;
};

}  // namespace lamina
