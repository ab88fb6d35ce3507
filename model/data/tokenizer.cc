#include "model/data/tokenizer.h"

#include <cctype>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/durable_file.h"
#include "common/status_macros.h"
#include "model/data/dataset_index.h"
#include "model/data/program_filter.h"

namespace stagecoach {
namespace {

constexpr char kPackage[] = "sentencepiece";
constexpr size_t kMaxVocabularyBytes = 64u << 20;  // 65,536 pieces of 1,000 bytes
constexpr size_t kMaxDecodedBytes = 64u << 20;     // far above any generated sample
constexpr uint64_t kMaxModelBytes = 256u << 20;    // real models have 0.2 to 5 MB

class ByteTokenizer : public Tokenizer {
 public:
  uint32_t vocabulary() const override { return 256; }
  bool is_bytes() const override { return true; }
  absl::Status Encode(absl::string_view piece, const Sink& sink) override {
    ids_.resize(piece.size());
    for (size_t i = 0; i < piece.size(); ++i) ids_[i] = static_cast<uint8_t>(piece[i]);
    return sink(ids_);
  }
  absl::Status FinishText(const Sink&) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Decode(absl::Span<const int64_t> ids) override {
    std::string bytes;
    for (const int64_t id : ids) bytes += static_cast<char>(id);
    return ReplaceInvalidUtf8(bytes);
  }

 private:
  std::vector<uint16_t> ids_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string model) : model_(std::move(model)) {}

  absl::Status Init() {
    std::string bytes;
    RETURN_IF_ERROR(ReadWholeFile(model_, kMaxModelBytes, &bytes));  // a better message than the program's
    const auto listing = RunProgram({"spm_export_vocab", "--model=" + model_}, kPackage, "", kMaxVocabularyBytes);
    if (absl::IsFailedPrecondition(listing.status())) return listing.status();
    if (!listing.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(model_, " is not a SentencePiece model: ", listing.status().message()));
    }
    uint32_t id = 0;
    for (const absl::string_view line : absl::StrSplit(*listing, '\n')) {
      const std::pair<absl::string_view, absl::string_view> piece = absl::StrSplit(line, absl::MaxSplits('\t', 1));
      if (line.empty()) continue;
      if (piece.first == "</s>") end_of_sentence_ = static_cast<int32_t>(id);
      ++id;
    }
    if (id < 2 || id > kMaxVocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat(model_, " has ", id, " pieces; token files hold 2 to ", kMaxVocabulary));
    }
    vocabulary_ = id;
    return absl::OkStatus();
  }

  uint32_t vocabulary() const override { return vocabulary_; }
  bool is_bytes() const override { return false; }

  absl::Status Encode(absl::string_view piece, const Sink& sink) override {
    if (piece.empty()) return absl::OkStatus();
    if (encoder_ == nullptr) {
      ASSIGN_OR_RETURN(encoder_,
                       ProgramFilter::Start({"spm_encode", "--model=" + model_, "--output_format=id"}, kPackage));
      number_ = kNoNumber;
      pending_lines_ = 0;
    }
    ends_with_newline_ = piece.back() == '\n';
    return encoder_->Write(piece, [&](absl::string_view output) { return TakeIds(output, sink); });
  }

  absl::Status FinishText(const Sink& sink) override {
    if (encoder_ == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(encoder_->Finish([&](absl::string_view output) { return TakeIds(output, sink); }));
    encoder_.reset();
    // The program ends its last line even where the text does not.
    if (!ends_with_newline_ && pending_lines_ > 0) --pending_lines_;
    ids_.clear();
    AppendLineEnds();
    return sink(ids_);
  }

  absl::StatusOr<std::string> Decode(absl::Span<const int64_t> ids) override {
    std::string input;
    for (const int64_t id : ids) absl::StrAppend(&input, id == end_of_sentence_ ? "\n" : absl::StrCat(id, " "));
    ASSIGN_OR_RETURN(std::string text, RunProgram({"spm_decode", "--model=" + model_, "--input_format=id"}, kPackage,
                                                  input, kMaxDecodedBytes));
    if (!text.empty() && text.back() == '\n' && (ids.empty() || ids.back() != end_of_sentence_)) text.pop_back();
    return ReplaceInvalidUtf8(text);
  }

 private:
  static constexpr uint32_t kNoNumber = ~uint32_t{0};

  // Parses "12 7 300\n" in any pieces.
  absl::Status TakeIds(absl::string_view output, const Sink& sink) {
    ids_.clear();
    for (const char c : output) {
      if (std::isdigit(static_cast<unsigned char>(c))) {
        number_ = (number_ == kNoNumber ? 0 : number_ * 10) + static_cast<uint32_t>(c - '0');
        if (number_ >= vocabulary_) return absl::InternalError("spm_encode wrote an id outside its vocabulary");
        continue;
      }
      if (number_ != kNoNumber) {
        AppendLineEnds();
        ids_.push_back(static_cast<uint16_t>(number_));
        number_ = kNoNumber;
      }
      if (c == '\n') ++pending_lines_;
    }
    return sink(ids_);
  }

  // Line ends wait until it is known that another line follows, because the last one may not be in the text.
  void AppendLineEnds() {
    if (end_of_sentence_ >= 0) ids_.insert(ids_.end(), pending_lines_, static_cast<uint16_t>(end_of_sentence_));
    pending_lines_ = 0;
  }

  std::string model_;
  uint32_t vocabulary_ = 0;
  int32_t end_of_sentence_ = -1;
  std::unique_ptr<ProgramFilter> encoder_;
  std::vector<uint16_t> ids_;
  uint32_t number_ = kNoNumber;
  size_t pending_lines_ = 0;
  bool ends_with_newline_ = false;
};

// Length of the valid character at the front, or minus the length of the invalid part (Unicode 15, table 3-7).
int CharacterLength(absl::string_view bytes) {
  const auto at = [&](size_t i) { return i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : uint8_t{0}; };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return -1;
  const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < low || at(1) > high) return -1;
  for (int i = 2; i < length; ++i) {
    if ((at(static_cast<size_t>(i)) & 0xc0) != 0x80) return -i;
  }
  return length;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const std::string& name) {
  if (name == "bytes") return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(name);
  RETURN_IF_ERROR(tokenizer->Init());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

std::string ReplaceInvalidUtf8(absl::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const int length = CharacterLength(bytes);
    const auto taken = static_cast<size_t>(length < 0 ? -length : length);
    if (length > 0) {
      text.append(bytes.data(), taken);
    } else {
      text += "\xEF\xBF\xBD";
    }
    bytes.remove_prefix(taken);
  }
  return text;
}

}  // namespace stagecoach
