// What `--data` names, as ids: text through a tokenizer (given, found or trained here), or token files as they are.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/documents.h"
#include "io/token_file.h"
#include "io/tokenizer.h"
#include "model/config.h"
#include "train/token_stream.h"

namespace lamina {

struct DataOptions {
  std::vector<std::string> paths = {};        // PATH or PATH=WEIGHT; one weight makes each path a source of its own
  std::string valid = {};                     // a path; or
  std::optional<double> valid_fraction = {};  // none: 0.05 of text, nothing of token files
  std::string token_type = {};                // "": by the header, else u16
  DocumentOptions documents = {};             // how text is read
  std::vector<std::string> tokenizers = {};   // folders, the first is taken
  int threads = 1;                            // that encode text
  int64_t trained_vocab = 0;                  // ids of a tokenizer trained here; 0: one has to be found
  int64_t seq = 1;  // validation needs a window: where the fraction is not asked for and has none,
                    // all of it is training data
};

struct Data {
  bool is_text = false;
  std::optional<Tokenizer> tokenizer;  // of token files only where one was given: it goes along with the model
  std::string tokenizer_source;        // for people: a folder, "trained", or "none"
  bool tokenizer_trained = false;      // on this data
  std::vector<Source> sources;         // what is trained on: one, or more where they have weights
  TokenStream train, valid;            // all sources one behind the other; valid may be empty
  int64_t text_bytes = 0;              // of the text that became ids, both parts

  // What the streams look at.
  std::deque<TokenFile> files;
  std::deque<std::vector<int32_t>> texts;
};

using Say = std::function<void(const std::string&)>;

// Whether the paths are token files; throws Error(invalid) where they are both.
bool are_token_files(const std::vector<std::string>& files, const std::string& token_type);

// Splits, encodes, trains a tokenizer: everything but the check of token files, whose vocabulary is the model's.
Data open_data(const DataOptions& options, const Say& say);

// Throws Error(invalid) that names the file, the place and the id.
void check_token_files(const Data& data, int64_t vocab_size);

// The id that ends each document: the tokenizer's <|endoftext|>, or the config's eos_token_id where no tokenizer is
// there. Throws Error(invalid) where neither is.
int32_t document_end(const Data& data, const ModelConfig& config);

// XXH3 with 128 bits over every id, in hex. Reading all of it costs no more than check_token_files() does.
std::string fingerprint(const TokenStream& ids);

}  // namespace lamina
