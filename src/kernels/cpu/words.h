// What the tiles of matrix products read: 32-bit words, in each arithmetic others, prepared by gemm_operands.h.
//
//              a word that is broadcast     a word of a vector             one step of a tile
//   f32        a number                     a number                       sum += x * v in fp32
//   bf16dot    two along the sum, bf16      two along the sum, bf16        two products, added to an fp32 sum
#pragma once

#include "kernels/cpu/simd.h"
#if defined(LAMINA_ARITHMETIC_BF16DOT)
#include "kernels/cpu/simd_bf16dot.h"
#endif

namespace lamina::LAMINA_ISA_NAMESPACE {

#if defined(LAMINA_ARITHMETIC_BF16DOT)

using Word = uint32_t;
using Words = Int;
constexpr int64_t kDepth = 2;  // numbers of a word along the sum
LAMINA_INLINE Int broadcast_word(const Word* p) {
  Word word;
  __builtin_memcpy(&word, p, sizeof(word));  // where rows of bf16 are read as they lie, they are no words
  return broadcast_int(word);
}
LAMINA_INLINE Vec step(Int x, Int v, Vec sum) { return dot_pairs(x, v, sum); }

#else

using Word = float;
using Words = Vec;
constexpr int64_t kDepth = 1;
LAMINA_INLINE Vec broadcast_word(const Word* p) { return broadcast(*p); }
LAMINA_INLINE Vec step(Vec x, Vec v, Vec sum) { return fma(x, v, sum); }

#endif

LAMINA_INLINE constexpr int64_t words_of(int64_t n) { return (n + kDepth - 1) / kDepth; }

// Memory of words that holds floats for a while, and the other way round.
LAMINA_INLINE float* as_floats(Word* words) { return reinterpret_cast<float*>(words); }
LAMINA_INLINE Word* as_words(float* floats) { return reinterpret_cast<Word*>(floats); }
// Where numbers wait that become the words of `to`: there, if they are of the same form.
LAMINA_INLINE float* floats_before(Word* to, float* row) { return kDepth == 1 ? as_floats(to) : row; }

// Whether operands of this precision differ from what lies in memory in fp32.
LAMINA_INLINE bool prepares(Dtype precision) { return kDepth > 1 || precision != Dtype::f32; }

}  // namespace lamina::LAMINA_ISA_NAMESPACE
