// A GPT-2 from one format and naming into another: a new folder with the weights, the config, the tokenizer's files and
// conversion.json, which says of every tensor where it went and what was done to it. Weights are streamed; what has to
// be rearranged is in memory one tensor at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/formats.h"
#include "io/model_weights.h"
#include "model/config.h"

namespace lamina {

struct ConvertRequest {
  std::string from = {};                       // a folder, an index of shards or a file of weights
  std::string to = {};                         // a folder, new or empty
  std::string format = "hf";                   // a row of target_formats()
  std::string names_from = {}, names_to = {};  // profiles' ids; empty: found out, the format's own
  std::string config = {};                     // a config.json; empty: what is beside or in the source
  std::string dtype = "keep";                  // or fp32, fp16, bf16
  std::vector<std::string> allow = {};         // tensors of the source that may be left behind, as patterns
  std::optional<int64_t> vocab_size = {};      // rows of the tables in the target
  bool optimizer = false;                      // moments and step too
  bool allow_non_finite = false;
};

struct TargetFormat {
  std::string_view id;  // "mindspore-ckpt"
  WeightFormat container;
  std::string_view file;   // "model.ckpt"
  std::string_view names;  // the usual profile
};
std::span<const TargetFormat> target_formats();

// What became of one tensor of the target.
struct Converted {
  std::string target, operation, dtype, hash;  // XXH3 of the packed bytes
  std::vector<int64_t> shape;
  std::vector<std::string> from, dtype_from;
  std::vector<std::vector<int64_t>> shape_from;
};

struct Conversion {
  ModelConfig config;  // of the target
  std::string format_from, names_from, format_to, names_to;
  std::string config_from;  // the file's name
  std::string config_json;  // the config.json that was read; empty: none
  int64_t parameters = 0;
  std::vector<Converted> tensors;  // of the model
  std::vector<Converted> state;    // moments and step of the optimizer
  std::string tied;                // a head of the source that equals the table; or empty
  std::string optimizer;           // what became of the optimizer's state, for people; empty: there is none
  LoadReport report;
  std::map<std::string, int64_t> non_finite;  // numbers of NaN and infinity by tensor of the target
  std::vector<std::string> warnings;
};

// `poll` is called between parts of some megabytes and may throw; then, and after any error, nothing is left at `to`.
// Throws Error(usage) for names and formats that do not exist, Error and LoadError for what cannot be converted.
Conversion convert(const ConvertRequest& request, const std::function<void()>& poll);

nlohmann::json conversion_json(const Conversion& conversion);
std::string conversion_text(const Conversion& conversion, int indent = -1);  // the same; -1: on one line

}  // namespace lamina
