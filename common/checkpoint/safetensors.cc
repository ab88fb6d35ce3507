#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/durable_file.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100u << 20;       // the limit of the format's reference implementation
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;  // far above any layer; bounds a lying file system
constexpr size_t kMaxDimensions = 16;                  // no tensor of ours has more than 4
constexpr int kMaxDepth = 3;                           // header > tensor > shape; deeper nesting is an attack on memory
constexpr char kMetadata[] = "__metadata__";

size_t ElementBytes(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, size_t> kSizes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},
      {"I16", 2}, {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) return size;
  }
  return 0;
}

// Quoted for a message: names come from a file that may be anything.
std::string Quoted(absl::string_view text) {
  return json(std::string(text.substr(0, 200))).dump(-1, ' ', true, json::error_handler_t::replace);
}

// Product of the shape times the element size. False: negative or beyond 2^63.
bool BytesOf(const std::vector<int64_t>& shape, size_t element_bytes, uint64_t* bytes) {
  uint64_t product = element_bytes;
  for (const int64_t extent : shape) {
    if (extent < 0) return false;
    if (extent != 0 && product > uint64_t{std::numeric_limits<int64_t>::max()} / static_cast<uint64_t>(extent)) {
      return false;
    }
    product *= static_cast<uint64_t>(extent);
  }
  *bytes = product;
  return true;
}

std::string DumpString(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// One tensor's range in the data part, while a header is checked.
struct Range {
  uint64_t begin = 0, end = 0;
  std::string name;
};

class HeaderParser {
 public:
  explicit HeaderParser(std::string file) : file_(std::move(file)) {}

  absl::Status Parse(absl::string_view header, absl::string_view data, std::map<std::string, TensorEntry>* tensors,
                     std::map<std::string, std::string>* metadata) {
    ASSIGN_OR_RETURN(const json root, ParseJson(header));
    std::vector<Range> ranges;
    for (const auto& [name, value] : root.items()) {
      if (name == kMetadata) {
        RETURN_IF_ERROR(ReadMetadata(value, metadata));
        continue;
      }
      TensorEntry entry;
      Range range;
      RETURN_IF_ERROR(ReadTensor(name, value, data.size(), &entry, &range));
      entry.data = data.substr(range.begin, range.end - range.begin);
      tensors->emplace(name, std::move(entry));
      ranges.push_back(std::move(range));
    }
    return CheckCover(std::move(ranges), data.size());
  }

 private:
  absl::Status Refuse(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(file_, " is not a valid safetensors file: ", what));
  }
  absl::Status Refuse(absl::string_view tensor, absl::string_view what) const {
    return Refuse(absl::StrCat("tensor ", Quoted(tensor), ": ", what));
  }

  absl::StatusOr<json> ParseJson(absl::string_view header) const {
    std::string problem;
    std::set<std::string> names;
    const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > kMaxDepth) {
        problem = "the header is nested too deeply";
        return false;
      }
      if (depth == 1 && event == json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second) {
        problem = absl::StrCat("the name ", Quoted(parsed.get<std::string>()), " occurs twice");
      }
      return true;
    };
    json root = json::parse(header.begin(), header.end(), callback, /*allow_exceptions=*/false);
    if (!problem.empty()) return Refuse(problem);
    if (root.is_discarded() || !root.is_object()) return Refuse("the header is not a JSON object");
    return root;
  }

  absl::Status ReadMetadata(const json& value, std::map<std::string, std::string>* metadata) const {
    if (!value.is_object()) return Refuse("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) return Refuse(absl::StrCat("__metadata__ ", Quoted(key), " is not a string"));
      metadata->emplace(key, text.get<std::string>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensor(const std::string& name, const json& value, uint64_t data_bytes, TensorEntry* entry,
                          Range* range) const {
    if (!value.is_object()) return Refuse(name, "not an object");
    for (const auto& item : value.items()) {
      const std::string& key = item.key();
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return Refuse(name, absl::StrCat("unknown key ", Quoted(key)));
      }
    }
    const auto dtype = value.find("dtype"), shape = value.find("shape"), offsets = value.find("data_offsets");
    if (dtype == value.end() || !dtype->is_string()) return Refuse(name, "dtype is missing or not a string");
    entry->name = name;
    entry->dtype = dtype->get<std::string>();
    const size_t element_bytes = ElementBytes(entry->dtype);
    if (element_bytes == 0) return Refuse(name, absl::StrCat("unknown dtype ", Quoted(entry->dtype)));
    if (shape == value.end() || !shape->is_array() || shape->size() > kMaxDimensions) {
      return Refuse(name, absl::StrCat("shape is not a list of at most ", kMaxDimensions, " numbers"));
    }
    for (const json& extent : *shape) {
      if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return Refuse(name, "shape holds something else than a number >= 0");
      }
      entry->shape.push_back(static_cast<int64_t>(extent.get<uint64_t>()));
    }
    if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned()) {
      return Refuse(name, "data_offsets is not a pair of numbers >= 0");
    }
    *range = {(*offsets)[0].get<uint64_t>(), (*offsets)[1].get<uint64_t>(), name};
    if (range->begin > range->end || range->end > data_bytes) {
      return Refuse(name, absl::StrCat("data_offsets [", range->begin, ", ", range->end, "] do not lie in the ",
                                       data_bytes, " bytes of data"));
    }
    uint64_t expected = 0;
    if (!BytesOf(entry->shape, element_bytes, &expected) || expected != range->end - range->begin) {
      return Refuse(name, absl::StrCat("shape and dtype need another size than the ", range->end - range->begin,
                                       " bytes of data_offsets"));
    }
    return absl::OkStatus();
  }

  // The tensors must cover the data exactly: a gap could hide something, an overlap would let two names share bytes.
  absl::Status CheckCover(std::vector<Range> ranges, uint64_t data_bytes) const {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    uint64_t covered = 0;
    for (const Range& range : ranges) {
      if (range.begin < covered) return Refuse(range.name, "overlaps the tensor before it");
      if (range.begin > covered) return Refuse(range.name, absl::StrCat("a gap lies before it, at byte ", covered));
      covered = range.end;
    }
    if (covered != data_bytes) {
      return Refuse(absl::StrCat("the tensors end at byte ", covered, " and the data at byte ", data_bytes));
    }
    return absl::OkStatus();
  }

  std::string file_;
};

}  // namespace

absl::StatusOr<std::string> SerializeSafetensors(const std::vector<TensorEntry>& entries,
                                                 const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    absl::StrAppend(&header, "\"", kMetadata, "\":{");
    for (const auto& [key, text] : metadata) absl::StrAppend(&header, DumpString(key), ":", DumpString(text), ",");
    header.back() = '}';
    header += ',';
  }
  std::set<absl::string_view> names;
  uint64_t offset = 0;
  for (const TensorEntry& entry : entries) {
    uint64_t bytes = 0;
    const size_t element_bytes = ElementBytes(entry.dtype);
    if (entry.name.empty() || entry.name == kMetadata || !names.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name ", Quoted(entry.name), " is empty, reserved or doubled"));
    }
    if (element_bytes == 0 || entry.shape.size() > kMaxDimensions || !BytesOf(entry.shape, element_bytes, &bytes) ||
        bytes != entry.data.size()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(entry.name), ": ", entry.data.size(),
                                                     " bytes do not fit its shape and dtype ", Quoted(entry.dtype)));
    }
    absl::StrAppend(&header, DumpString(entry.name), ":{\"dtype\":\"", entry.dtype, "\",\"shape\":[");
    for (size_t i = 0; i < entry.shape.size(); ++i) absl::StrAppend(&header, i == 0 ? "" : ",", entry.shape[i]);
    absl::StrAppend(&header, "],\"data_offsets\":[", offset, ",", offset + bytes, "]},");
    offset += bytes;
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data part starts on a multiple of 8
  if (header.size() > kMaxHeaderBytes) return absl::InvalidArgumentError("safetensors header above 100 MiB");

  std::string bytes;
  bytes.reserve(8 + header.size() + offset);
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  bytes += header;
  for (const TensorEntry& entry : entries) bytes.append(entry.data.data(), entry.data.size());
  return bytes;
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  std::string bytes;
  RETURN_IF_ERROR(ReadWholeFile(path, kMaxFileBytes, &bytes));
  return Parse(std::move(bytes), path);
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Parse(std::string bytes, const std::string& name_for_errors) {
  SafetensorsReader reader;
  reader.bytes_ = std::make_shared<const std::string>(std::move(bytes));
  const absl::string_view all = *reader.bytes_;
  const auto refuse = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(name_for_errors, " is not a valid safetensors file: ", what));
  };
  if (all.size() < 8)
    return refuse(absl::StrCat("it has ", all.size(), " bytes, fewer than the 8 of its header length"));
  uint64_t header_bytes = 0;
  for (int i = 0; i < 8; ++i) header_bytes |= uint64_t{static_cast<uint8_t>(all[static_cast<size_t>(i)])} << (8 * i);
  if (header_bytes > kMaxHeaderBytes)
    return refuse(absl::StrCat("a header of ", header_bytes, " bytes is above 100 MiB"));
  if (header_bytes > all.size() - 8) {
    return refuse(absl::StrCat("truncated: a header of ", header_bytes, " bytes in a file of ", all.size()));
  }
  RETURN_IF_ERROR(
      HeaderParser(name_for_errors)
          .Parse(all.substr(8, header_bytes), all.substr(8 + header_bytes), &reader.tensors_, &reader.metadata_));
  return reader;
}

}  // namespace stagecoach
