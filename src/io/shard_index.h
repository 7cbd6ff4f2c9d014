// The index of weights in several files: which shard holds which tensor, checked against what the shards really hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/model_names.h"

namespace lamina {

struct ShardIndex {
  std::map<std::string, std::string> home;  // tensor -> shard, a file name in the index's folder
  std::vector<std::string> shards;          // each once
  std::optional<int64_t> total_size;        // as some other program counted it
};

// Throws Error(invalid) where a shard's name leads elsewhere or a shard is not there.
ShardIndex read_shard_index(const std::string& path);

// What a shard holds.
struct Shard {
  std::string file;  // its name, without the folder
  std::vector<std::string> tensors;
};

// What the index says against what the shards hold, both ways.
std::vector<NameProblem> compare_with_index(const std::vector<Shard>& shards, const ShardIndex& index);

}  // namespace lamina
