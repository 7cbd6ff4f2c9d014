#include "io/file_reader.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lamina {
namespace {

// Corpora come in thousands of files, and the usual limit of open ones is 1024 where many more are allowed.
bool allow_more_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

FileReader::FileReader(const std::string& path) : path_(path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC;
  fd_ = ::open(path.c_str(), kFlags);
  if (fd_ < 0 && errno == EMFILE && allow_more_files()) fd_ = ::open(path.c_str(), kFlags);
  if (fd_ < 0) throw_error(ErrorCode::io, "cannot open file: {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    throw_error(ErrorCode::io, "cannot read file: {}: expected a regular file, got a folder, pipe or device", path);
  }
  size_ = info.st_size;
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

void FileReader::read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_error(ErrorCode::io, "cannot read file: {}: byte {}: {}", path_, offset, std::strerror(errno));
    if (got == 0)
      throw_error(ErrorCode::io, "file was cut short: {}: expected {} bytes as when it was opened, it ends at byte {}",
                  path_, size_, offset);
    offset += got;
    out = out.subspan(static_cast<size_t>(got));
  }
}

}  // namespace lamina
