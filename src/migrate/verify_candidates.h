// The rows of the table of mistakes that change weights of layers: each adds its what-ifs.
#pragma once

#include <vector>

#include "migrate/verify_mistakes.h"

namespace lamina {

void transposed_weights(const MistakeContext& context, std::vector<Candidate>& out);
void missing_biases(const MistakeContext& context, std::vector<Candidate>& out);
void swapped_gamma_beta(const MistakeContext& context, std::vector<Candidate>& out);
void swapped_norms(const MistakeContext& context, std::vector<Candidate>& out);
void swapped_layers(const MistakeContext& context, std::vector<Candidate>& out);
void qkv_orders(const MistakeContext& context, std::vector<Candidate>& out);
void qkv_by_heads(const MistakeContext& context, std::vector<Candidate>& out);

}  // namespace lamina
