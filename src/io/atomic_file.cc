#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace lamina {
namespace {

// One write call takes at most this much, so that a full disk is noticed early and the limit of the call never matters.
constexpr size_t kChunk = size_t{64} << 20;

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A rename puts a file in the place of what is there. The links of /dev to this process's own files lead to a file
// where the output goes to one, so these are told by where they lead.
bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return true;
  return std::filesystem::read_symlink(path, ignored).string().starts_with("/proc/");
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  const std::filesystem::path target(path);
  return (target.parent_path() /
          fmt::format(".{}.{}-{}.tmp", target.filename().string(), ::getpid(), counter.fetch_add(1)))
      .string();
}

bool is_temporary(std::string name) {
  if (!name.starts_with('.') || !name.ends_with(".tmp")) return false;
  name.resize(name.size() - 4);
  const size_t dot = name.rfind('.'), dash = name.rfind('-');
  if (dot == 0 || dot == std::string::npos || dash == std::string::npos || dash < dot) return false;
  const std::string process = name.substr(dot + 1, dash - dot - 1), number = name.substr(dash + 1);
  const auto digits = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  return digits(process) && digits(number);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), folder_(folder_of(path)) {
  std::error_code ignored;
  const std::filesystem::path target(path);
  if (target.filename().empty() || std::filesystem::is_directory(target, ignored)) fail("write", EISDIR);
  if (is_special(target))
    throw_error(ErrorCode::io, "cannot write file: {}: expected a regular file or nothing there, got a pipe or device",
                path);
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = temporary_name(path);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    // A temporary of a process that died and had the same id: take another name.
    if (fd_ < 0 && !(errno == EEXIST && attempt < 100)) fail("create", errno);
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
  fd_ = -1;
}

void AtomicFile::fail(const char* what, int reason) {
  discard();
  throw_error(ErrorCode::io, "cannot {} file: {}: {} (after {} bytes)", what, path_, std::strerror(reason), size_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  LAMINA_CHECK(fd_ >= 0, "write to {} after commit or failure", path_);
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kChunk));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("write", done < 0 ? errno : ENOSPC);
    size_ += done;
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void AtomicFile::rewrite(int64_t offset, std::span<const std::byte> bytes) {
  LAMINA_CHECK(fd_ >= 0 && offset >= 0 && std::ssize(bytes) <= size_ - offset, "bytes {}+{} of {}", offset,
               bytes.size(), path_);
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("write", done < 0 ? errno : ENOSPC);
    offset += done;
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void AtomicFile::commit() {
  LAMINA_CHECK(fd_ >= 0, "commit of {} after commit or failure", path_);
  if (::fsync(fd_) != 0) fail("flush", errno);
  const int fd = fd_;
  fd_ = -1;
  const bool closed = ::close(fd) == 0;
  if (!closed || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail(closed ? "rename" : "close", reason);
  }
  sync_folder(folder_);
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> parents;  // of each folder that is new
  for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, error); at = at.parent_path())
    parents.push_back(folder_of(at.string()));
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw_error(ErrorCode::io, "cannot create folder: {}: {}", path, error.message());
  for (const std::string& parent : parents) {
    try {
      sync_folder(parent);
    } catch (const Error&) {  // a parent that may be written and not read
    }
  }
}

void check_output_file(const std::string& path) { const AtomicFile tried(path); }

void check_output_folder(const std::string& path, const std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path at = path;  // the nearest of it and those above it that is there
  while (!at.empty() && !fs::exists(fs::symlink_status(at, error))) at = at.parent_path();
  if (at.empty()) at = ".";
  if (!fs::is_directory(at, error))
    throw_error(ErrorCode::io, "cannot create folder: {}: {}, expected a folder, got something else", path,
                at.string());
  if (at == path) {
    for (const std::string& file : files) check_output_file((at / file).string());
    return;
  }
  const std::string tried = temporary_name((at / "folder").string());
  if (::mkdir(tried.c_str(), 0777) != 0)
    throw_error(ErrorCode::io, "cannot create folder: {}: {}", path, std::strerror(errno));
  ::rmdir(tried.c_str());
}

void sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_error(ErrorCode::io, "cannot open folder: {}: {}", path, std::strerror(errno));
  const bool done = ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;  // some file systems have no such thing
  const int reason = errno;
  ::close(fd);
  if (!done) throw_error(ErrorCode::io, "cannot flush folder: {}: {}", path, std::strerror(reason));
}

}  // namespace lamina
