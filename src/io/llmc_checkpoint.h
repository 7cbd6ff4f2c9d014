// The checkpoint of llm.c: 256 numbers of 32 bits, then the tensors of a GPT-2 one after another without names.
// Versions 3 (fp32) and 5 (bf16), both with a table of tokens padded to a multiple of 128 rows. Read only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/tensor_content.h"

namespace lamina {

bool looks_like_llmc(std::span<const std::byte> file);

// Tensors under HuggingFace's names and in the shapes that PyTorch's Linear has, (out, in):
// transformer.h.0.attn.c_attn.weight is (3C, C). The table keeps its padded rows. metadata: n_positions, vocab_size,
// n_layer, n_head, n_embd, padded_vocab_size. Throws Error(invalid) that names `where` unless the file is exactly as
// long as its header says.
TensorContent parse_llmc(std::span<const std::byte> file, const std::string& where);

}  // namespace lamina
