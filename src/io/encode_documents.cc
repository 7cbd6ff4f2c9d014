#include "io/encode_documents.h"

#include <algorithm>
#include <exception>
#include <string>

namespace lamina {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

// A part of one document, encoded by itself.
struct Block {
  size_t document;
  std::string_view text;
  int64_t begin;  // in the document
  std::vector<int32_t> ids = {};
  EncodeCounts counts = {};
  std::exception_ptr fault = {};
};

// Before which a text may be cut, as long as no special token's text holds it.
std::string cut_characters(const Tokenizer& tokenizer) {
  std::string out;
  for (const char c : {'\n', ' '}) {
    const auto& specials = tokenizer.parts().specials;
    if (std::none_of(specials.begin(), specials.end(),
                     [&](int32_t id) { return tokenizer.token(id).find(c) != std::string_view::npos; }))
      out += c;
  }
  return out;
}

// The end of a block of about kBlock bytes. A cut before white space that follows a visible ASCII character is safe: no
// piece holds both, and how the pieces behind it fall does not depend on what is before.
size_t block_end(std::string_view text, size_t begin, std::string_view cuts) {
  for (size_t at = std::max<size_t>(begin + kBlock, 1); at < text.size(); ++at) {
    at = text.find_first_of(cuts, at);
    if (at == std::string_view::npos) break;
    if (text[at - 1] > ' ' && text[at - 1] < 0x7F) return at;
  }
  return text.size();
}

std::vector<Block> cut(std::span<const Document> documents, std::string_view cuts) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < documents.size(); ++i) {
    const std::string_view text = documents[i].text;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = block_end(text, begin, cuts);
      blocks.push_back({i, text.substr(begin, end - begin), static_cast<int64_t>(begin)});
      begin = end;
    }
  }
  return blocks;
}

struct Job {
  std::span<const Document> documents;
  const EncodeOptions& options;
  std::vector<Encoder>& encoders;  // one per thread
  std::vector<Block>& blocks;
};

void encode_block(void* context, int64_t task, int thread) noexcept {
  Job& job = *static_cast<Job*>(context);
  Block& block = job.blocks[static_cast<size_t>(task)];
  try {
    EncodeOptions options = job.options;
    options.where = job.documents[block.document].where;
    options.base = job.documents[block.document].base + block.begin;
    block.counts = job.encoders[static_cast<size_t>(thread)].encode(block.text, block.ids, options);
  } catch (...) {
    block.fault = std::current_exception();
  }
}

}  // namespace

std::vector<std::vector<int32_t>> encode_documents(const Tokenizer& tokenizer, std::span<const Document> documents,
                                                   ThreadTeam& team, const EncodeOptions& options,
                                                   EncodeCounts& counts) {
  std::vector<Block> blocks = cut(documents, cut_characters(tokenizer));
  std::vector<Encoder> encoders(static_cast<size_t>(team.size()), Encoder(tokenizer));
  Job job{documents, options, encoders, blocks};
  team.run(static_cast<int64_t>(blocks.size()), encode_block, &job);
  std::vector<std::vector<int32_t>> out(documents.size());
  for (Block& block : blocks) {
    if (block.fault) std::rethrow_exception(block.fault);
    counts.special += block.counts.special;
    counts.replaced += block.counts.replaced;
    std::vector<int32_t>& ids = out[block.document];
    if (ids.empty())
      ids = std::move(block.ids);
    else
      ids.insert(ids.end(), block.ids.begin(), block.ids.end());
    block.ids = {};
  }
  return out;
}

}  // namespace lamina
