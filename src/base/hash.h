// XXH3 with 128 bits over data that comes in pieces: finds accidents, withstands no attacker.
#pragma once

#include <xxhash.h>

#include <new>
#include <span>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace lamina {

class Hash128 {
 public:
  Hash128() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_);
  }
  ~Hash128() { XXH3_freeState(state_); }
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;

  template <typename T, size_t N>
  void add(std::span<T, N> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    XXH3_128bits_update(state_, values.data(), values.size_bytes());
  }

  // 32 digits, as `xxhsum -H2` prints them.
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* state_;
};

template <typename T, size_t N>
std::string hash128(std::span<T, N> values) {
  Hash128 hash;
  hash.add(values);
  return hash.text();
}

}  // namespace lamina
