#include "common/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr size_t kReadBytes = 1 << 20;  // a read this long costs no measurable call overhead and stays in the cache

}  // namespace

struct Sha256::Impl {
  Impl() : context(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context, EVP_sha256(), nullptr); }
  ~Impl() { EVP_MD_CTX_free(context); }
  EVP_MD_CTX* context;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(absl::string_view bytes) { EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()); }

std::string Sha256::FinishHex() {
  char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(impl_->context, reinterpret_cast<unsigned char*>(digest), &size);
  return absl::BytesToHexString(absl::string_view(digest, size));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.FinishHex();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    const std::string message = absl::StrCat("cannot open ", path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::DataLossError(message);
  }
  Sha256 hash;
  std::vector<char> piece(kReadBytes);
  for (;;) {
    const ssize_t count = read(file, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const absl::Status status = absl::DataLossError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
      close(file);
      return status;
    }
    if (count == 0) break;
    hash.Update(absl::string_view(piece.data(), static_cast<size_t>(count)));
  }
  close(file);
  return hash.FinishHex();
}

}  // namespace stagecoach
