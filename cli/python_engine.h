// What every command needs that has another program's Python compute something.
#pragma once

#include <string>

namespace lamina::cli {

// The interpreter that a variable names, else that of the environment .venv/NAME, else the one in the path.
std::string python_of(const char* variable, const std::string& name);

// The package lamina.mindspore as files in FOLDER/lamina, since MindSpore reads the source of what it compiles.
void write_mindspore_package(const std::string& folder);

// A folder under the system's own for such, that goes when this does.
struct TemporaryFolder {
  std::string path;
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

}  // namespace lamina::cli
