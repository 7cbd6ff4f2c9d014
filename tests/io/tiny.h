// Tiny: the small GPT-2 of all tests, made by counter-based random numbers, and small safetensors files of it.
//
// 2 layers, 2 heads, width 16, context 16, vocabulary 97. Stream k yields 24-bit integers u, the top bits of splitmix64
// at (k << 32) + i + 1; element i is centre + scale * (u - 2^23) / 2^23 in double, rounded once.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "io/files.h"
#include "model/config.h"

namespace lamina::test {

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;
  std::string bytes;
};

using TinyFile = std::vector<TinyTensor>;

inline uint32_t tiny_word(uint64_t stream, uint64_t i) {
  return static_cast<uint32_t>(mix64(((stream << 32) + i + 1) * 0x9E3779B97F4A7C15ull) >> 40);
}

inline std::vector<float> tiny_values(uint64_t stream, int64_t count, double centre, double scale) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>(
        centre + scale * ((static_cast<double>(tiny_word(stream, static_cast<uint64_t>(i))) - 8388608.0) / 8388608.0)));
  return out;
}

inline std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline TinyTensor f32(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {name, std::move(shape), "F32", bytes_of(values)};
}

inline TinyTensor uniform(const std::string& name, std::vector<int64_t> shape, uint64_t stream, double centre,
                          double scale) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return f32(name, std::move(shape), tiny_values(stream, count, centre, scale));
}

inline ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 97;
  config.n_positions = 16;
  config.n_embd = 16;
  config.n_layer = 2;
  config.n_head = 2;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0;
  config.bos_token_id = config.eos_token_id = 96;
  return config;
}

// HuggingFace's names with `front` before them.
inline TinyFile tiny_tensors(int64_t layers = 2, bool untied = false, const std::string& front = "transformer.") {
  TinyFile out{uniform(front + "wte.weight", {97, 16}, 0, 0, 0.5),
               uniform(front + "wpe.weight", {16, 16}, 1, 0, 0.125)};
  for (int64_t l = 0; l < layers; ++l) {
    const std::string h = front + "h." + std::to_string(l) + ".";
    const uint64_t k = 16 * static_cast<uint64_t>(l + 1);
    out.push_back(uniform(h + "ln_1.weight", {16}, k, 1, 0.25));
    out.push_back(uniform(h + "ln_1.bias", {16}, k + 1, 0, 0.25));
    out.push_back(uniform(h + "attn.c_attn.weight", {16, 48}, k + 2, 0, 0.5));
    out.push_back(uniform(h + "attn.c_attn.bias", {48}, k + 3, 0, 0.25));
    out.push_back(uniform(h + "attn.c_proj.weight", {16, 16}, k + 4, 0, 0.25));
    out.push_back(uniform(h + "attn.c_proj.bias", {16}, k + 5, 0, 0.125));
    out.push_back(uniform(h + "ln_2.weight", {16}, k + 6, 1, 0.25));
    out.push_back(uniform(h + "ln_2.bias", {16}, k + 7, 0, 0.25));
    out.push_back(uniform(h + "mlp.c_fc.weight", {16, 64}, k + 8, 0, 0.5));
    out.push_back(uniform(h + "mlp.c_fc.bias", {64}, k + 9, 0, 0.25));
    out.push_back(uniform(h + "mlp.c_proj.weight", {64, 16}, k + 10, 0, 0.25));
    out.push_back(uniform(h + "mlp.c_proj.bias", {16}, k + 11, 0, 0.125));
  }
  out.push_back(uniform(front + "ln_f.weight", {16}, 2, 1, 0.25));
  out.push_back(uniform(front + "ln_f.bias", {16}, 3, 0, 0.25));
  if (untied) out.push_back(uniform("lm_head.weight", {97, 16}, 4, 0, 0.5));
  return out;
}

inline TinyTensor& tensor_of(TinyFile& file, const std::string& name) {
  for (TinyTensor& tensor : file)
    if (tensor.name == name) return tensor;
  throw std::runtime_error("no tensor " + name);
}

// A whole file of safetensors. `pad` spaces end the header, so that the data can be made unaligned.
inline std::string tiny_safetensors(const TinyFile& file, size_t pad = 0) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const TinyTensor& tensor : file) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8 + pad, ' ');
  return safetensors_bytes_of(text, data);
}

}  // namespace lamina::test
