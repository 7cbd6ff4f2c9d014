#include "python_engine.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "embedded/kMindsporePackage.h"

namespace lamina::cli {

std::string python_of(const char* variable, const std::string& name) {
  const std::string local = ".venv/" + name + "/bin/python";
  if (const char* named = std::getenv(variable); named != nullptr) return named;
  return std::filesystem::exists(local) ? local : "python3";
}

void write_mindspore_package(const std::string& folder) {
  std::filesystem::create_directories(folder + "/lamina/mindspore");
  for (const auto& [name, text] : kMindsporePackage) std::ofstream(folder + "/lamina/" + name) << text;
}

TemporaryFolder::TemporaryFolder(const std::string& name)
    : path((std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string()) {
  if (mkdtemp(path.data()) == nullptr) throw_error(ErrorCode::io, "cannot make a folder: {}", path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace lamina::cli
