// Every gRPC setting of the product, in one place (docs/gotchas.md gives the reasons).
//
// Threading: free functions; any thread.
// Errors: StartServer: UNAVAILABLE when the address cannot be bound.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// A chunk of 1 MiB (kMaxChunkBytes of worker/tensor/frame_codec.h) and its header.
constexpr size_t kMaxDataMessageBytes = (size_t{1} << 20) + (size_t{64} << 10);
constexpr size_t kMaxControlMessageBytes = size_t{1} << 20;

enum class ChannelKind {
  kControl,  // worker and tool to coordinator
  kData,     // frames and probes between workers
};

// A channel with a connection of its own. Does not block, does not connect yet.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, ChannelKind kind);

// The server-side settings for `builder`. quota_bytes: what all connections together may make gRPC hold.
void ApplyServerSettings(grpc::ServerBuilder* builder, ChannelKind kind, size_t quota_bytes);

struct StartedServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// Binds host:port (port 0 = any free one) and serves `service`, which must outlive the server.
absl::StatusOr<StartedServer> StartServer(const std::string& listen, ChannelKind kind, size_t quota_bytes,
                                          grpc::Service* service);

}  // namespace stagecoach
