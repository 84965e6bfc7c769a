// An entry is
//   flashproof kernel 1 \n SHA-256 of all that follows \n symbol \n bytes of the log \n log, machine code
#include "kernels/kernel_cache.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include "reference/sha256.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view heading = "flashproof kernel 1\n";
constexpr size_t digest_length = 64;

fs::path file_of(const std::string& folder, const std::string& key) { return fs::path(folder) / (key + ".kernel"); }

}  // namespace

std::optional<CompiledKernel> read_cached(const std::string& folder, const std::string& key) {
  std::error_code none;
  if (!fs::is_regular_file(file_of(folder, key), none)) return {};  // reading a folder throws; a pipe may never end
  std::ifstream file(file_of(folder, key), std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const size_t body_at = heading.size() + digest_length + 1;
  if (!content.starts_with(heading) || content.size() < body_at) return {};
  const std::string body = content.substr(body_at);
  if (content.compare(heading.size(), digest_length, sha256(body)) != 0) return {};

  const size_t symbol_end = body.find('\n'), number_end = body.find('\n', symbol_end + 1);
  const size_t log_bytes = std::strtoull(body.c_str() + symbol_end + 1, nullptr, 10);
  CompiledKernel kernel;
  kernel.symbol = body.substr(0, symbol_end);
  kernel.log = body.substr(number_end + 1, log_bytes);
  kernel.cubin = body.substr(number_end + 1 + log_bytes);
  kernel.cached = true;
  return kernel;
}

std::string write_cached(const std::string& folder, const std::string& key, const CompiledKernel& kernel) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return error.message();
  const std::string body = kernel.symbol + "\n" + std::to_string(kernel.log.size()) + "\n" + kernel.log + kernel.cubin;
  const std::string content = std::string(heading) + sha256(body) + "\n" + body;

  std::string draft = (fs::path(folder) / ".draft-XXXXXX").string();
  const int descriptor = mkstemp(draft.data());
  if (descriptor < 0) return std::strerror(errno);
  const ssize_t written = write(descriptor, content.data(), content.size());
  const int reason = written < 0 ? errno : ENOSPC;
  close(descriptor);
  if (written == ssize_t(content.size())) {
    fs::rename(draft, file_of(folder, key), error);
    if (!error) return "";
  }
  std::remove(draft.c_str());
  return error ? error.message() : std::strerror(reason);
}

}  // namespace flashproof
