// config.json of HuggingFace's GPT-2 <-> ModelConfig. Every key that changes a number is honoured or refused by name;
// keys known to change none are accepted; any other key is a warning. An absent key has GPT2Config's documented
// default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace lamina {

struct HfConfig {
  ModelConfig model;                  // validated
  std::vector<std::string> warnings;  // a line each, for people
};

// Throws Error(invalid) that names `where`, the key, what was expected and what is there.
HfConfig parse_hf_config(std::string_view text, const std::string& where);

// `path`: a .json file, a folder that holds a config.json, or a file of weights beside one.
HfConfig read_hf_config(const std::string& path);

// The whole file, every key that matters written out. Reading it back gives the same value.
std::string hf_config_text(const ModelConfig& config);
std::string generation_config_text(const ModelConfig& config);  // greedy, with the model's own ids

}  // namespace lamina
