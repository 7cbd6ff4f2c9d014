#include "io/shard_index.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/quote.h"

namespace lamina {
namespace {

// A shard's name as the index spells it: a plain file name, nothing that leads out of the folder.
void check_shard_name(const std::string& name, const std::string& index_path) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain)
    throw_error(ErrorCode::invalid, "bad index: {}: shard name, expected a file name in the same folder, got {}",
                index_path, quote_text(name));
}

}  // namespace

ShardIndex read_shard_index(const std::string& path) {
  const nlohmann::json root = read_json(path, {.bytes = int64_t{64} << 20});
  const JsonReader read(root, "bad index: " + path);
  const JsonReader shards = read["weight_map"];
  ShardIndex out;
  std::set<std::string> names;
  for (const auto& [tensor, value] : shards.object().items()) {
    const std::string shard = shards[tensor].as<std::string>();
    check_shard_name(shard, path);
    out.home.emplace(tensor, shard);
    names.insert(shard);
  }
  if (root.contains("metadata") && root["metadata"].is_object()) {  // what else stands there is another program's
    const nlohmann::json size = root["metadata"].value("total_size", nlohmann::json());
    if (size.is_number_integer()) out.total_size = size.get<int64_t>();
  }
  out.shards.assign(names.begin(), names.end());
  std::string absent;
  for (const std::string& shard : out.shards)
    if (!path_exists((std::filesystem::path(path).parent_path() / shard).string()))
      absent += (absent.empty() ? "" : ", ") + quote_text(shard);
  if (!absent.empty())
    throw_error(ErrorCode::invalid, "shard missing: {}: expected {} beside it, got none", path, absent);
  return out;
}

std::vector<NameProblem> compare_with_index(const std::vector<Shard>& shards, const ShardIndex& index) {
  std::vector<NameProblem> problems;
  std::map<std::string_view, std::string> home;  // tensor -> the shard that holds it
  for (const Shard& shard : shards)
    for (const std::string& tensor : shard.tensors) {
      const std::string name = quote_text(tensor);
      const auto [at, fresh] = home.emplace(tensor, shard.file);
      if (!fresh)
        problems.push_back({ProblemKind::doubled, fmt::format("{} is in {} and {}", name, at->second, shard.file)});
      if (!index.home.contains(tensor))
        problems.push_back({ProblemKind::extra, fmt::format("{} is in {}, not in the index", name, shard.file)});
    }
  for (const auto& [tensor, shard] : index.home) {
    const auto at = home.find(tensor);
    if (at == home.end())
      problems.push_back({ProblemKind::missing, fmt::format("{} from {}", quote_text(tensor), shard)});
    else if (at->second != shard)
      problems.push_back(
          {ProblemKind::missing, fmt::format("{} from {}: it is in {}", quote_text(tensor), shard, at->second)});
  }
  std::stable_sort(problems.begin(), problems.end(),
                   [](const NameProblem& a, const NameProblem& b) { return a.kind < b.kind; });
  return problems;
}

}  // namespace lamina
