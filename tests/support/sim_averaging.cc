#include "tests/support/sim_averaging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/averaging/contribution_weights.h"

namespace stagecoach::testing {

struct SimFleet::Attempt {
  // [shard][rank]; null: dead.
  std::vector<std::vector<std::unique_ptr<RoundExchange>>> owners;
};

SimFleet::SimFleet(uint64_t seed, std::vector<StageCuts> cuts, std::vector<uint64_t> unit_parameters)
    : seed_(seed), shards_(*RefineCuts(cuts)), unit_parameters_(std::move(unit_parameters)) {
  const uint64_t total = std::accumulate(unit_parameters_.begin(), unit_parameters_.end(), uint64_t{0});
  std::vector<float> start(total);
  for (float& value : start) value = static_cast<float>(Random(2000001)) / 1e6f - 1;
  weights_.assign(cuts.size(), start);
  uint64_t next = 0;
  common_.resize(cuts.size());
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    first_.push_back(next);
    for (std::vector<CommonShard>& common : common_) {
      common.emplace_back();
      common.back().theta.assign(start.begin() + static_cast<long>(next),
                                 start.begin() + static_cast<long>(next + parameters(s)));
    }
    next += parameters(s);
  }
}

uint32_t SimFleet::Random(uint32_t below) { return CounterRng(seed_, RngPurpose::kTest).Word(word_++) % below; }

void SimFleet::Train(float scale) {
  for (std::vector<float>& weights : weights_) {
    for (float& value : weights) value += scale * (static_cast<float>(Random(2001)) / 1000 - 1);
  }
}

std::vector<float> SimFleet::Theta(uint32_t cluster) const {
  std::vector<float> theta;
  for (const CommonShard& shard : common_[cluster]) theta.insert(theta.end(), shard.theta.begin(), shard.theta.end());
  return theta;
}

ExchangeTerms SimFleet::TermsOf(uint32_t shard, const std::vector<uint32_t>& members,
                                const std::vector<uint64_t>& tokens, const SimRoundOptions& options) const {
  ExchangeTerms terms;
  terms.round = round_;
  terms.attempt = attempt_;
  terms.shard = shard;
  terms.parameters = parameters(shard);
  terms.method = options.method;
  terms.codec = options.codec;
  terms.error_feedback = options.error_feedback;
  terms.outer = options.outer;
  std::vector<Contribution> contributions;
  for (const uint32_t cluster : members) {
    contributions.push_back({tokens[cluster], 1});
    terms.epochs.push_back(10 + cluster);
  }
  terms.weights = ContributionWeights(WeightRule::kTokens, contributions);
  terms.chunks = EqualChunks(terms.parameters, static_cast<uint32_t>(members.size()));
  terms.piece_parameters = options.piece_parameters;
  return terms;
}

bool SimFleet::RunAttempt(const std::vector<uint32_t>& members, const std::vector<uint64_t>& tokens,
                          const SimRoundOptions& options, SimRoundResult* result, Attempt* attempt) {
  struct Flight {
    uint32_t shard, from, to;
    OutgoingPiece piece;
  };
  std::multimap<uint64_t, Flight> flights;
  uint64_t now = 0;
  attempt->owners.clear();
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    attempt->owners.emplace_back();
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      const float* const pinned = weights_[members[rank]].data() + first_[s];
      auto begun = RoundExchange::Begin(
          TermsOf(s, members, tokens, options), rank, &common_[members[rank]][s],
          [pinned](uint64_t first, absl::Span<float> out) { std::copy_n(pinned + first, out.size(), out.begin()); });
      EXPECT_TRUE(begun.ok()) << begun.status();
      attempt->owners.back().push_back(*std::move(begun));
    }
  }
  for (bool busy = true; busy;) {
    busy = false;
    if (options.victim && alive(*options.victim) && result->events >= options.kill_at_event) {
      dead_.insert(*options.victim);
      const auto rank = std::find(members.begin(), members.end(), *options.victim) - members.begin();
      for (auto& owners : attempt->owners) {
        owners[static_cast<size_t>(rank)].reset();
        for (auto& owner : owners) {
          if (owner != nullptr) owner->OnPeerBroken(static_cast<uint32_t>(rank));
        }
      }
    }
    // Everybody sends a random part of what it may.
    for (uint32_t s = 0; s < attempt->owners.size(); ++s) {
      auto& owners = attempt->owners[s];
      for (uint32_t from = 0; from < owners.size(); ++from) {
        for (uint32_t to = 0; to < owners.size(); ++to) {
          if (owners[from] == nullptr) continue;
          while (owners[from]->HasSend(to) && Random(3) > 0) {
            auto piece = owners[from]->NextSend(to);
            if (!piece) break;
            const uint64_t due = now + 1 + Random(50);
            flights.emplace(due, Flight{s, from, to, *std::move(piece)});
          }
          busy |= owners[from]->HasSend(to);
        }
      }
    }
    if (flights.empty()) continue;
    busy = true;
    ++result->events;
    const Flight flight = std::move(flights.begin()->second);
    now = flights.begin()->first;
    flights.erase(flights.begin());
    auto& receiver = attempt->owners[flight.shard][flight.to];
    if (receiver == nullptr) continue;
    receiver->OnPiece(flight.from, flight.piece.header, *flight.piece.payload);
    if (Random(20) == 0) {  // a second time: dropped
      EXPECT_NE(receiver->OnPiece(flight.from, flight.piece.header, *flight.piece.payload), PieceVerdict::kStored);
    }
  }
  result->bytes.assign(clusters(), {});
  bool all = true;
  for (uint32_t s = 0; s < attempt->owners.size(); ++s) {
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      const auto& owner = attempt->owners[s][rank];
      if (owner != nullptr) result->bytes[members[rank]][s] = owner->bytes_sent();
      all &= owner != nullptr && owner->phase() == RoundExchange::Phase::kProposed;
    }
  }
  return all;
}

SimRoundResult SimFleet::Round(const std::vector<uint64_t>& tokens, const SimRoundOptions& options) {
  SimRoundResult result;
  result.shards = shards_.size();
  ++round_;
  attempt_ = 0;
  constexpr uint32_t kMaxAttempts = 3;
  while (result.attempts < kMaxAttempts) {
    ++result.attempts;
    ++attempt_;
    std::vector<uint32_t> members;
    for (uint32_t c = 0; c < clusters(); ++c) {
      if (alive(c)) members.push_back(c);
    }
    Attempt attempt;
    const bool all = RunAttempt(members, tokens, options, &result, &attempt);
    for (auto& owners : attempt.owners) {
      for (auto& owner : owners) {
        if (owner == nullptr) continue;
        if (all) {
          result.hashes.insert(std::to_string(owner->terms().shard) + owner->hash());
          EXPECT_TRUE(owner->Commit(round_, attempt_, owner->hash()).ok());
        } else {
          owner->Abort(round_, attempt_);
          EXPECT_TRUE(owner->proposed_theta().empty());
        }
      }
    }
    if (!all) continue;
    result.committed = true;
    return result;
  }
  return result;
}

}  // namespace stagecoach::testing
