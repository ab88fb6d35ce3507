// Rounds between the clusters of a run: how RunDriver and RunRounds are tied together.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/service/run_driver.h"

namespace stagecoach {

std::unique_ptr<RunRounds> RunDriver::MakeRounds() {
  RunRounds::Surroundings around;  // all called while this driver lives: the rounds are its own
  around.send_to_all = [this](const CoordinatorMessage& message) { SendToMembers(message); };
  around.journal = [this](uint64_t round, uint64_t step, const std::string& hash) {
    JournalRoundOf(round, step, hash);
  };
  around.fatal = [this](const std::string& error) { Perform(machine_.OnFatal(around_.loop->Now(), error)); };
  return std::make_unique<RunRounds>(built_->record, built_->plans[0].epoch(), built_->first_step, std::move(around));
}

void RunDriver::SendToMembers(const CoordinatorMessage& message) {
  for (const std::string& worker : machine_.members()) around_.send(worker, message);
}

// A round is committed to nobody before it is durable.
void RunDriver::JournalRoundOf(uint64_t round, uint64_t step, const std::string& hash) {
  around_.store->Post([self = shared_from_this(), row = JournalRound{round, step, hash}, epoch = epoch()] {
    JournalBatch batch;
    batch.rounds.push_back(row);
    const absl::Status status = self->around_.journal->Append(self->name_, batch);
    self->around_.loop->Post([self, status, round = row.round, epoch] {
      if (self->ended() || !self->rounds_ || self->epoch() != epoch) return;
      const MonoTime now = self->around_.loop->Now();
      if (!status.ok()) return self->Perform(self->machine_.OnFatal(now, status.message()));
      ++self->revision_;
      self->rounds_->OnJournaled(now, round);
    });
  });
}

void RunDriver::OnRoundMessage(const std::string& worker, const WorkerMessage& message) {
  const MonoTime now = around_.loop->Now();
  const RunMachine::Place place = machine_.PlaceOf(worker);
  machine_.OnProgress(now);
  absl::Status status = absl::InvalidArgumentError("speaks of rounds in a run without them");
  if (rounds_ && message.has_round_ready()) {
    status = rounds_->OnReady(now, place.cluster, place.stage, message.round_ready());
  } else if (rounds_) {
    status = rounds_->OnProposal(now, place.cluster, place.stage, message.round_proposal());
  }
  if (!status.ok()) Perform(machine_.OnFatal(now, absl::StrCat("worker ", worker, " ", status.message())));
}

// The fastest link that was measured: neighbours of a worker share its uplink with its partners. 0: none was.
double RunDriver::UplinkOf(const std::string& worker) const {
  double rate = 0;
  for (const auto& [ends, link] : measured_.links) {
    if (ends.first == worker) rate = std::max(rate, link.bytes_per_second());
  }
  return rate;
}

// False: the run has been ended with an error.
bool RunDriver::EndedWithOneSetOfWeights() {
  // Clusters that stopped earlier each keep their own.
  if (!rounds_ || end_step_ != built_->record.spec().schedule().steps() || checkpoint_step_ != *end_step_) return true;
  const auto other = std::find_if(cluster_hashes_.begin(), cluster_hashes_.end(),
                                  [&](const std::string& hash) { return hash != cluster_hashes_[0]; });
  if (other == cluster_hashes_.end()) return true;
  Perform(machine_.OnFatal(
      around_.loop->Now(),
      absl::StrCat(
          "the clusters ended with different weights although they averaged after the last step: cluster 0 has ",
          cluster_hashes_[0].substr(0, 12), ", cluster ", other - cluster_hashes_.begin(), " has ",
          other->substr(0, 12))));
  return false;
}

}  // namespace stagecoach
