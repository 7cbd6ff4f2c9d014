#include "io/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lamina {

AppendFile::AppendFile(const std::string& path, int64_t keep)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)), size_(keep) {
  if (fd_ < 0) fail("create", errno);
  try {
    cut(keep);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::fail(const char* what, int reason) const {
  throw_error(ErrorCode::io, "cannot {} file: {}: {}", what, path_, std::strerror(reason));
}

void AppendFile::cut(int64_t keep) {
  if (::ftruncate(fd_, keep) != 0 || ::lseek(fd_, keep, SEEK_SET) != keep) fail("cut", errno);
  size_ = keep;
}

void AppendFile::append(std::string_view record) {
  for (std::string_view rest = record; !rest.empty();) {
    const ssize_t done = ::write(fd_, rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const int reason = done < 0 ? errno : ENOSPC;
      if (::ftruncate(fd_, size_) == 0) ::lseek(fd_, size_, SEEK_SET);
      fail("write", reason);
    }
    rest.remove_prefix(static_cast<size_t>(done));
  }
  size_ += std::ssize(record);
}

void AppendFile::replace(int64_t at, std::string_view record) {
  if (const int64_t missing = at + std::ssize(record) - size_; missing > 0)
    append(std::string(static_cast<size_t>(missing), ' '));
  for (std::string_view rest = record; !rest.empty();) {
    const ssize_t done = ::pwrite(fd_, rest.data(), rest.size(), at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("write", done < 0 ? errno : ENOSPC);
    rest.remove_prefix(static_cast<size_t>(done));
    at += done;
  }
  if (at < size_) cut(at);
}

void AppendFile::sync() {
  if (::fdatasync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) fail("flush", errno);
}

}  // namespace lamina
