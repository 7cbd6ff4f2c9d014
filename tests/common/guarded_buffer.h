// Memory with a canary on both sides: whoever writes one byte too many is found out, whoever reads one gets a NaN.
// Under AddressSanitizer the canaries are out of bounds, so that a read is found out as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace lamina::testing {

class GuardedBuffer {
 public:
  // `bytes` at a 64-byte boundary, each word of them and of the guards the canary.
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes), words_((bytes + 3 * kGuard) / sizeof(uint32_t) + 1, kCanary) {
    void* p = reinterpret_cast<std::byte*>(words_.data()) + kGuard;
    size_t space = bytes + 2 * kGuard;
    data_ = static_cast<std::byte*>(std::align(kGuard, bytes + kGuard, p, space));
    close();
  }
  ~GuardedBuffer() { open(); }
  GuardedBuffer(const void* source, size_t bytes) : GuardedBuffer(bytes) {
    if (bytes > 0) std::memcpy(data_, source, bytes);
  }
  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&& other) {
    open();
    bytes_ = other.bytes_, words_ = std::move(other.words_), data_ = other.data_;
    return *this;
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool equals(const void* other) const { return bytes_ == 0 || std::memcmp(data_, other, bytes_) == 0; }

  // Nothing outside the buffer was written.
  bool intact() const {
    open();
    const bool good = canaries_stand();
    close();
    return good;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint32_t kCanary = 0x7FC0DEAD;  // a quiet NaN

  const std::byte* begin() const { return reinterpret_cast<const std::byte*>(words_.data()); }
  const std::byte* end() const { return begin() + words_.size() * sizeof(uint32_t); }

  bool canaries_stand() const {
    for (const std::byte* p = begin(); p < end(); ++p) {
      if (p == data_) p += bytes_;
      if (p < end() && *p != canary_byte(static_cast<size_t>(p - begin()))) return false;
    }
    return true;
  }

#if defined(__SANITIZE_ADDRESS__)
  void open() const { ASAN_UNPOISON_MEMORY_REGION(begin(), words_.size() * sizeof(uint32_t)); }
  void close() const {
    ASAN_POISON_MEMORY_REGION(begin(), static_cast<size_t>(data_ - begin()));
    ASAN_POISON_MEMORY_REGION(data_ + bytes_, static_cast<size_t>(end() - data_) - bytes_);
  }
#else
  void open() const {}
  void close() const {}
#endif

  static std::byte canary_byte(size_t offset) {
    const uint32_t canary = kCanary;
    return reinterpret_cast<const std::byte*>(&canary)[offset % sizeof(uint32_t)];
  }

  size_t bytes_;
  std::vector<uint32_t> words_;
  std::byte* data_;
};

}  // namespace lamina::testing
