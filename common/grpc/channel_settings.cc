#include "common/grpc/channel_settings.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <malloc.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr int kControlKeepaliveMs = 20'000;
constexpr int kDataKeepaliveMs = 10'000;
// Below 10 s a client whose channel nobody polls at the moment sees the answer too late and kills a healthy link.
constexpr int kKeepaliveTimeoutMs = 10'000;
// Far below the clients' 10 s: the default of 5 min answers keepalive with GOAWAY "too_many_pings".
constexpr int kMinPingIntervalMs = 5'000;
// Despite its name MIN_RECONNECT_BACKOFF is the time that one attempt gets: round trips of a handshake on a bad link,
// or a busy machine that does not answer at once.
constexpr int kConnectAttemptMs = 10'000;
constexpr int kFirstReconnectMs = 100;   // neighbours start within a second of each other
constexpr int kLastReconnectMs = 5'000;  // the default of 120 s leaves a healed link unused for minutes
constexpr int kMaxStreamsPerConnection = 16;
constexpr int kMaxMetadataBytes = 16 << 10;

int MaxMessageBytes(ChannelKind kind) {
  return static_cast<int>(kind == ChannelKind::kControl ? kMaxControlMessageBytes : kMaxDataMessageBytes);
}

// gRPC takes and frees a megabyte for every chunk. With glibc's defaults that memory goes back to the kernel each time
// and comes again as zeroed pages, which costs a third of all CPU time of a stream (bench/link: 1.8 against 1.1 s/GB).
void KeepFreedMemory() {
  static const bool kDone = [] {
    mallopt(M_MMAP_THRESHOLD, 4 << 20);   // a chunk and its header are below; tensors above are mapped as before
    mallopt(M_TRIM_THRESHOLD, 64 << 20);  // what an idle process may keep
    return true;
  }();
  static_cast<void>(kDone);
}

int KeepaliveMs(ChannelKind kind) { return kind == ChannelKind::kControl ? kControlKeepaliveMs : kDataKeepaliveMs; }

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, ChannelKind kind) {
  if (kind == ChannelKind::kData) KeepFreedMemory();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, KeepaliveMs(kind));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(MaxMessageBytes(kind));
  arguments.SetMaxSendMessageSize(MaxMessageBytes(kind));
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Channels with equal settings would share one connection, and a full stream would delay the others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // streams are opened again by their owner, who knows what was sent
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectAttemptMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastReconnectMs);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void ApplyServerSettings(grpc::ServerBuilder* builder, ChannelKind kind, size_t quota_bytes) {
  if (kind == ChannelKind::kData) KeepFreedMemory();
  builder->SetMaxReceiveMessageSize(MaxMessageBytes(kind));
  builder->SetMaxSendMessageSize(MaxMessageBytes(kind));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, KeepaliveMs(kind));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // gRPC checks the size of a message after it was inflated: half a gigabyte of zeros fits into a few kilobytes.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // else two servers share a port and nobody notices
  grpc::ResourceQuota quota("stagecoach");
  quota.Resize(quota_bytes);
  builder->SetResourceQuota(quota);
}

absl::StatusOr<StartedServer> StartServer(const std::string& listen, ChannelKind kind, size_t quota_bytes,
                                          grpc::Service* service) {
  StartedServer started;
  grpc::ServerBuilder builder;
  ApplyServerSettings(&builder, kind, quota_bytes);
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &started.port);
  builder.RegisterService(service);
  started.server = builder.BuildAndStart();
  if (started.server == nullptr || started.port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on this address; is the port taken, does the host exist? address=", listen));
  }
  return started;
}

}  // namespace stagecoach
