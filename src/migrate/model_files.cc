#include "migrate/model_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/version.h"
#include "io/atomic_file.h"
#include "io/folder.h"
#include "io/hf_config.h"
#include "io/json.h"

namespace lamina {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kCopied[] = {
    "generation_config.json",  "tokenizer.json",   "tokenizer_config.json", "vocab.json", "merges.txt",
    "special_tokens_map.json", "added_tokens.json"};

// As transformers spells the type of all weights; "float32" where they differ.
std::string type_name(const Conversion& conversion) {
  std::set<std::string> types;
  for (const Converted& tensor : conversion.tensors) types.insert(tensor.dtype);
  if (types == std::set<std::string>{"F16"}) return "float16";
  return types == std::set<std::string>{"BF16"} ? "bfloat16" : "float32";
}

// Keys of the source stay, also those that mean nothing here; what decides numbers is written out.
std::string config_text(const Conversion& conversion) {
  Json out = Json::object();
  if (!conversion.config_json.empty()) out = read_json(conversion.config_json);
  // Other words for what is written out below.
  for (const char* alias : {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"})
    out.erase(alias);
  out.update(Json::parse(hf_config_text(conversion.config)));
  out["dtype"] = type_name(conversion);
  if (out.contains("torch_dtype")) out["torch_dtype"] = type_name(conversion);
  return out.dump(2) + "\n";
}

// load_checkpoint and load_param_into_net drop what does not fit without a word.
std::string loader_text(const TargetFormat& format) {
  const std::string kind = format.container == WeightFormat::mindspore_ckpt ? "ckpt" : "safetensors";
  return fmt::format(
      R"(# Loads {file} into a network whose parameters have its names, or says what does not fit. An optimizer's moments, where
# they are there too, are for the training cell that holds both: a network alone leaves them.
import pathlib

import mindspore as ms

STATE = ("adam_m.", "adam_v.", "global_step")


def load(net, path=pathlib.Path(__file__).with_name("{file}")):
    weights = ms.load_checkpoint(str(path), format="{kind}")
    missing, left_over = ms.load_param_into_net(net, weights, strict_load=True)
    missing = [name for name in missing if name != "learning_rate"]     # a setting, no state
    left_over = [name for name in left_over if not name.startswith(STATE)]
    if missing or left_over:
        raise ValueError(f"{{path}}: not in the file: {{missing}}; not in the network: {{left_over}}")
    return net
)",
      fmt::arg("file", format.file), fmt::arg("kind", kind));
}

Json tensor_json(const Converted& tensor) {
  Json from = Json::array();
  for (size_t i = 0; i < tensor.from.size(); ++i)
    from.push_back({{"name", tensor.from[i]}, {"dtype", tensor.dtype_from[i]}, {"shape", tensor.shape_from[i]}});
  return {{"target", tensor.target}, {"operation", tensor.operation}, {"dtype", tensor.dtype},
          {"shape", tensor.shape},   {"hash", tensor.hash},           {"from", std::move(from)}};
}

Json tensors_json(const std::vector<Converted>& tensors) {
  Json out = Json::array();
  for (const Converted& tensor : tensors) out.push_back(tensor_json(tensor));
  return out;
}

}  // namespace

Json conversion_json(const Conversion& conversion) {
  Json out = {{"lamina", kVersion},
              {"from", {{"format", conversion.format_from}, {"names", conversion.names_from}}},
              {"to", {{"format", conversion.format_to}, {"names", conversion.names_to}}},
              {"config", conversion.config_from},
              {"parameters", conversion.parameters},
              {"used", conversion.report.used},
              {"wanted", conversion.report.wanted},
              {"tensors", tensors_json(conversion.tensors)},
              {"optimizer", tensors_json(conversion.state)},
              {"ignored", conversion.report.ignored},
              {"state_of_training", conversion.report.state},
              {"allowed", conversion.report.allowed},
              {"taken_off_names", conversion.report.removed},
              {"non_finite", conversion.non_finite},
              {"warnings", conversion.warnings}};
  out["tied"] = Json::array();
  if (!conversion.tied.empty())
    out["tied"].push_back(
        {{"source", conversion.tied}, {"operation", "tie"}, {"target", conversion.tensors.front().target}});
  return out;
}

// Paths in warnings need not be UTF-8.
std::string conversion_text(const Conversion& conversion, int indent) {
  return conversion_json(conversion).dump(indent, ' ', false, Json::error_handler_t::replace);
}

void write_model_files(const Conversion& conversion, const TargetFormat& format, const StagedFolder& folder) {
  write_file(folder.file("config.json"), config_text(conversion));
  for (const char* name : kCopied) {
    const std::string path = (fs::path(conversion.config_json).parent_path() / name).string();
    if (!conversion.config_json.empty() && path_exists(path)) write_file(folder.file(name), read_text_file(path, name));
  }
  if (!path_exists(folder.file(kCopied[0])))
    write_file(folder.file(kCopied[0]), generation_config_text(conversion.config));
  if (format.names == "lamina") write_file(folder.file("load_mindspore.py"), loader_text(format));
  write_file(folder.file("conversion.json"), conversion_text(conversion, 1) + "\n");
}

}  // namespace lamina
