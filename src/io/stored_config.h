// The configuration of a model whose weights are in any format: a config.json, or what the file of weights says itself.
// Nothing is guessed from shapes: the number of heads is in none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/formats.h"
#include "model/config.h"

namespace lamina {

struct StoredConfig {
  ModelConfig model;
  int64_t table_rows = 0;  // of the table in the file: more than vocab_size where rows were added to fill blocks
  bool biases = true;      // false: the model has none (nanoGPT's bias=False)
  std::string json;        // the config.json that was read; empty: none
  std::string source;      // where it was found
  std::vector<std::string> warnings;
};

// `given` (a config.json under any name; empty: none) counts first, then the config.json of the folder or beside the
// file, then what the file itself says: nanoGPT's model_args, llm.c's header. A config.json that contradicts the file
// is refused. Throws Error(invalid) that names what is missing.
StoredConfig find_config(const std::string& path, const WeightFiles& files, const std::string& given);

}  // namespace lamina
