#include "io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lamina {

FolderLock::FolderLock(const std::string& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) throw_error(ErrorCode::io, "cannot open folder: {}: {}", folder, std::strerror(errno));
  // Some file systems know no locks: there is nothing to wait for then.
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw_error(ErrorCode::io, "folder in use by another process: {}", folder);
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace lamina
