// What the tiles of matrix products read: 32-bit words, in each arithmetic others, prepared by gemm_operands.h.
//
//              a word that is broadcast     a word of a vector             one step of a tile
//   f32        a number                     a number                       sum += x * v in fp32
//   bf16dot    two along the sum, bf16      two along the sum, bf16        two products, added to an fp32 sum
//   f16chunk   a number twice, fp16         two neighbours across, fp16    two sums in fp16, now and then added to fp32
//
// f16chunk: numbers are scaled by powers of two, each row of the broadcast operand by its own and kScaleColumns columns
// of the other one by one of theirs, anew for each chunk of a sum, so that no sum in fp16 exceeds 2^15: the largest
// magnitude of the first comes to below 2^kBroadcastTop, of the second to below 2^vector_top(products added up in
// fp16). What is far below the largest one loses digits that fp16 does not have. Neither the groups nor the order of
// sums depend on the lanes of an ISA.
#pragma once

#include "kernels/cpu/args.h"
#if defined(LAMINA_ARITHMETIC_BF16DOT)
#include "kernels/cpu/simd_bf16dot.h"
#elif defined(LAMINA_ARITHMETIC_F16CHUNK)
#include "kernels/cpu/simd_f16chunk.h"
#endif

namespace lamina::LAMINA_ISA_NAMESPACE {

#if defined(LAMINA_ARITHMETIC_F32)

using Word = float;
using Words = Vec;
using Sum = Vec;
constexpr int64_t kDepth = 1;   // numbers of a word along the sum
constexpr int64_t kAcross = 1;  // columns of a word of a vector
constexpr bool kWordsAreFloats = true;
LAMINA_INLINE Vec broadcast_word(const Word* p) { return broadcast(*p); }
LAMINA_INLINE Vec step(Vec x, Vec v, Vec sum) { return fma(x, v, sum); }

#else

using Word = uint32_t;
using Words = Int;
constexpr bool kWordsAreFloats = false;
LAMINA_INLINE Int broadcast_word(const Word* p) {
  Word word;
  __builtin_memcpy(&word, p, sizeof(word));  // where rows of bf16 are read as they lie, they are no words
  return broadcast_int(word);
}

#if defined(LAMINA_ARITHMETIC_BF16DOT)
using Sum = Vec;
constexpr int64_t kDepth = 2;
constexpr int64_t kAcross = 1;
LAMINA_INLINE Vec step(Int x, Int v, Vec sum) { return dot_pairs(x, v, sum); }
#else
using Sum = Int;
constexpr int64_t kDepth = 1;
constexpr int64_t kAcross = 2;
LAMINA_INLINE Int step(Int x, Int v, Int sum) { return fma_halves(x, v, sum); }
#endif

#endif

// The constants of f16chunk. Its id names how many products are added up in fp16.
constexpr bool kScaled = kAcross > 1;
constexpr int64_t kScaleColumns = 96;
constexpr int64_t kHalfChunk = 128;
constexpr int64_t kHeadHalfChunk = 64;
constexpr int kBroadcastTop = 4;
LAMINA_INLINE int vector_top(int64_t half_chunk) { return half_chunk > kHeadHalfChunk ? 4 : 5; }
#if defined(LAMINA_ARITHMETIC_F16CHUNK)
#define LAMINA_HALF_CHUNK(products) "." products
#else
#define LAMINA_HALF_CHUNK(products) ""
#endif

LAMINA_INLINE constexpr int64_t words_of(int64_t n) { return (n + kDepth - 1) / kDepth; }

// Memory of words that holds floats for a while, and the other way round.
LAMINA_INLINE float* as_floats(Word* words) { return reinterpret_cast<float*>(words); }
LAMINA_INLINE Word* as_words(float* floats) { return reinterpret_cast<Word*>(floats); }
// Where numbers wait that become the words of `to`: there, if they are of the same form.
LAMINA_INLINE float* floats_before(Word* to, float* row) { return kWordsAreFloats ? as_floats(to) : row; }

// Whether operands of this precision differ from what lies in memory in fp32.
LAMINA_INLINE bool prepares(Dtype precision) { return !kWordsAreFloats || precision != Dtype::f32; }

}  // namespace lamina::LAMINA_ISA_NAMESPACE
