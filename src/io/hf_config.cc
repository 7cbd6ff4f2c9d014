#include "io/hf_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/json.h"
#include "io/quote.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

// Keys without effect on any number that this product computes: descriptions, classification heads, generation
// settings, ways of running. Sorted, for a binary search.
constexpr std::string_view kNoEffect[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_commit_hash",
                                          "_from_model_config",
                                          "_name_or_path",
                                          "_num_labels",
                                          "architectures",
                                          "attn_implementation",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "chunk_size_feed_forward",
                                          "cls_token_id",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "encoder_no_repeat_ngram_size",
                                          "experimental_attn_implementation",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "id2label",
                                          "is_decoder",
                                          "label2id",
                                          "length_penalty",
                                          "max_length",
                                          "max_new_tokens",
                                          "min_length",
                                          "model_type",
                                          "name_or_path",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_labels",
                                          "num_return_sequences",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_past",
                                          "output_scores",
                                          "pad_token_id",
                                          "predict_special_tokens",
                                          "prefix",
                                          "problem_type",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "sep_token_id",
                                          "summary_activation",
                                          "summary_first_dropout",
                                          "summary_proj_to_labels",
                                          "summary_type",
                                          "summary_use_proj",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers_version",
                                          "typical_p",
                                          "unk_token_id",
                                          "use_bfloat16",
                                          "use_cache",
                                          "use_return_dict"};
static_assert(std::is_sorted(std::begin(kNoEffect), std::end(kNoEffect)));

// Reads one key after the other and remembers which were asked for.
class Reader {
 public:
  Reader(const Json& root, const std::string& where)
      : root_(root), where_(where), values_(root, "bad model config: " + where) {}

  JsonReader find(const std::string& key) {
    known_.insert(key);
    return values_[key];
  }

  template <typename T>
  void read(const std::string& key, T& out) {
    out = find(key).as_or(std::move(out));
  }

  // GPT2Config takes a few names of other models for its own.
  void alias(const std::string& key, const std::string& other, int64_t& out) {
    const JsonReader value = find(other);
    if (!value.present() || value.is_null()) return;
    const int64_t size = value.as<int64_t>();
    if (root_.contains(key) && out != size)
      throw_error(ErrorCode::invalid, "bad model config: {}: {} contradicts {}, expected {}, got {}", where_, other,
                  key, out, size);
    out = size;
  }

  std::vector<std::string> unknown_keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : root_.items())
      if (!known_.contains(key) && !std::binary_search(std::begin(kNoEffect), std::end(kNoEffect), key))
        keys.push_back(key);
    return keys;
  }

 private:
  const Json& root_;
  const std::string& where_;
  JsonReader values_;
  std::set<std::string, std::less<>> known_;
};

void refuse_other_models(Reader& reader, const std::string& where, std::vector<std::string>& warnings) {
  std::string type = "gpt2";
  reader.read("model_type", type);
  if (type != "gpt2")
    throw_error(ErrorCode::unsupported, "unsupported model: {}: model_type, expected \"gpt2\", got {}", where,
                quote_text(type, 60));
  if (!reader.find("model_type").present())
    warnings.push_back(fmt::format("{}: no model_type, \"gpt2\" is assumed", where));
  for (const char* key : {"add_cross_attention", "is_encoder_decoder"}) {
    bool value = false;
    reader.read(key, value);
    if (value) throw_error(ErrorCode::unsupported, "unsupported model: {}: {}, expected false, got true", where, key);
  }
  for (const char* key : {"pruned_heads", "quantization_config"}) {
    const JsonReader value = reader.find(key);
    if (value.present() && !value.json().empty())
      throw_error(ErrorCode::unsupported, "unsupported model: {}: {}, expected none, got {}", where, key,
                  json_text(value.json()));
  }
}

// An id that the vocabulary lacks can never occur: it is taken as none, and said where the file states it.
// (GPT2Config's default 50256 stays in the files of small models.) HuggingFace allows a list here; one id is all that
// can be kept.
void read_token_id(Reader& reader, const std::string& key, const ModelConfig& config, std::optional<int64_t>& id,
                   const std::string& where, std::vector<std::string>& warnings) {
  JsonReader value = reader.find(key);
  if (value.present()) {
    if (value.is_null()) {
      id.reset();
      return;
    }
    if (value.json().is_array() && value.json().size() == 1) value = value.entry(0);
    id = value.as<int64_t>();
    if (*id < 0) value.refuse("an id from 0 on or null");
    if (*id >= config.vocab_size)
      warnings.push_back(
          fmt::format("{}: {} {} is not below vocab_size {}: taken as none", where, key, *id, config.vocab_size));
  }
  if (id && *id >= config.vocab_size) id.reset();
}

void read_sizes(Reader& reader, ModelConfig& config) {
  reader.read("vocab_size", config.vocab_size);
  reader.read("n_positions", config.n_positions);
  reader.read("n_embd", config.n_embd);
  reader.read("n_layer", config.n_layer);
  reader.read("n_head", config.n_head);
  reader.alias("n_positions", "max_position_embeddings", config.n_positions);
  reader.alias("n_positions", "n_ctx", config.n_positions);
  reader.alias("n_embd", "hidden_size", config.n_embd);
  reader.alias("n_layer", "num_hidden_layers", config.n_layer);
  reader.alias("n_head", "num_attention_heads", config.n_head);
  const JsonReader inner = reader.find("n_inner");
  if (!inner.present() || inner.is_null()) return;
  config.n_inner = inner.as<int64_t>();
  if (config.n_inner < 1) inner.refuse("a number from 1 on or null");
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, where);
  if (!root.is_object())
    throw_error(ErrorCode::invalid, "bad model config: {}: expected an object, got {}", where, json_text(root));
  HfConfig out;
  ModelConfig& config = out.model;
  Reader reader(root, where);
  refuse_other_models(reader, where, out.warnings);
  read_sizes(reader, config);
  reader.read("activation_function", config.activation_function);
  reader.read("layer_norm_epsilon", config.layer_norm_epsilon);
  reader.read("resid_pdrop", config.resid_pdrop);
  reader.read("embd_pdrop", config.embd_pdrop);
  reader.read("attn_pdrop", config.attn_pdrop);
  reader.read("initializer_range", config.initializer_range);
  reader.read("scale_attn_weights", config.scale_attn_weights);
  reader.read("scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx);
  reader.read("reorder_and_upcast_attn", config.reorder_and_upcast_attn);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  read_token_id(reader, "bos_token_id", config, config.bos_token_id, where, out.warnings);
  read_token_id(reader, "eos_token_id", config, config.eos_token_id, where, out.warnings);
  for (const std::string& key : reader.unknown_keys())
    out.warnings.push_back(fmt::format("{}: unknown key {} has no effect here", where, quote_text(key, 60)));
  try {
    validate(config);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} (in {})", error.what(), where), error.hint());
  }
  return out;
}

HfConfig read_hf_config(const std::string& path) {
  std::filesystem::path file(path);
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    throw_error(ErrorCode::io, "no such model: {}, expected a model folder or a file of weights, got nothing there",
                path);
  if (std::filesystem::is_directory(file, ignored))
    file /= "config.json";
  else if (!path.ends_with(".json") || path.ends_with(".index.json"))
    file.replace_filename("config.json");
  return parse_hf_config(read_text_file(file.string(), "a config.json"), file.string());
}

std::string hf_config_text(const ModelConfig& config) {
  const auto optional = [](const std::optional<int64_t>& id) { return id ? Json(*id) : Json(nullptr); };
  Json root = {{"activation_function", config.activation_function},
               {"add_cross_attention", false},
               {"architectures", {"GPT2LMHeadModel"}},
               {"attn_pdrop", config.attn_pdrop},
               {"bos_token_id", optional(config.bos_token_id)},
               {"dtype", "float32"},
               {"embd_pdrop", config.embd_pdrop},
               {"eos_token_id", optional(config.eos_token_id)},
               {"initializer_range", config.initializer_range},
               {"layer_norm_epsilon", config.layer_norm_epsilon},
               {"model_type", "gpt2"},
               {"n_ctx", config.n_positions},
               {"n_embd", config.n_embd},
               {"n_head", config.n_head},
               {"n_inner", config.n_inner > 0 ? Json(config.n_inner) : Json(nullptr)},
               {"n_layer", config.n_layer},
               {"n_positions", config.n_positions},
               {"reorder_and_upcast_attn", config.reorder_and_upcast_attn},
               {"resid_pdrop", config.resid_pdrop},
               {"scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx},
               {"scale_attn_weights", config.scale_attn_weights},
               {"tie_word_embeddings", config.tie_word_embeddings},
               {"use_cache", true},
               {"vocab_size", config.vocab_size}};
  return root.dump(2) + "\n";
}

std::string generation_config_text(const ModelConfig& config) {
  Json root = {{"do_sample", false}};
  if (config.bos_token_id) root["bos_token_id"] = *config.bos_token_id;
  if (config.eos_token_id) root["eos_token_id"] = *config.eos_token_id;
  return root.dump(2) + "\n";
}

}  // namespace lamina
