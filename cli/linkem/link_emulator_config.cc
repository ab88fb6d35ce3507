#include "cli/linkem/link_emulator_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/link_profile.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

absl::Status At(const std::string& path, const YAML::Mark& mark, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", mark.line + 1, ": ", problem));
}

absl::Status CheckKeys(const std::string& path, const YAML::Node& node, const std::vector<std::string>& allowed) {
  if (!node.IsMap()) return At(path, node.Mark(), "expected keys and values");
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      std::string names;
      for (const std::string& name : allowed) absl::StrAppend(&names, names.empty() ? "" : ", ", name);
      return At(path, entry.first.Mark(), absl::StrCat(key, ": unknown key; allowed: ", names));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<EmulatedLink> ReadLink(const std::string& path, const YAML::Node& node, const std::string& profile) {
  RETURN_IF_ERROR(CheckKeys(path, node, {"from", "to", "listen", "target", "profile"}));
  for (const char* key : {"from", "to", "target"}) {
    if (!node[key]) return At(path, node.Mark(), absl::StrCat(key, ": required"));
  }
  EmulatedLink link;
  link.from = node["from"].as<std::string>();
  link.to = node["to"].as<std::string>();
  link.target = node["target"].as<std::string>();
  if (node["listen"]) link.listen_port = node["listen"].as<uint16_t>();
  const absl::StatusOr<LinkShape> shape = ParseLinkShape(node["profile"] ? node["profile"].as<std::string>() : profile);
  if (!shape.ok()) return At(path, node.Mark(), shape.status().message());
  link.shape = *shape;
  return link;
}

absl::StatusOr<EmulatedEnd> ReadEnd(const std::string& path, const YAML::Node& node) {
  RETURN_IF_ERROR(CheckKeys(path, node, {"name", "up", "down"}));
  if (!node["name"]) return At(path, node.Mark(), "name: required");
  EmulatedEnd end;
  end.name = node["name"].as<std::string>();
  for (const bool up : {true, false}) {
    const YAML::Node value = node[up ? "up" : "down"];
    if (!value) continue;
    const absl::StatusOr<double> rate = ParseLinkRate(value.as<std::string>());
    if (!rate.ok()) return At(path, value.Mark(), rate.status().message());
    (up ? end.up_bytes_per_second : end.down_bytes_per_second) = *rate;
  }
  return end;
}

}  // namespace

absl::StatusOr<LinkShape> ParseLinkShape(const std::string& text) {
  ASSIGN_OR_RETURN(const LinkProfile profile, ParseLinkProfile(text));
  return LinkShape{profile.bytes_per_second, profile.one_way_delay, profile.jitter, profile.loss};
}

absl::StatusOr<EmulatedLink> ParseLinkArgument(const std::string& argument, const LinkShape& shape) {
  const size_t equals = argument.find('='), arrow = argument.find("->"), colon = argument.find(':');
  EmulatedLink link;
  uint32_t port = 0;
  bool good = equals != std::string::npos && arrow != std::string::npos && colon < equals && equals < arrow;
  if (good) {
    link.from = argument.substr(0, colon);
    link.to = argument.substr(colon + 1, equals - colon - 1);
    link.target = argument.substr(arrow + 2);
    const std::string listen = argument.substr(equals + 1, arrow - equals - 1);
    const size_t port_at = listen.rfind(':');
    good = !link.from.empty() && !link.to.empty() && !link.target.empty() && port_at != std::string::npos &&
           (listen.substr(0, port_at) == "127.0.0.1" || listen.substr(0, port_at) == "localhost") &&
           absl::SimpleAtoi(listen.substr(port_at + 1), &port) && port <= 65535;
  }
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("--link: '", argument, "' is not FROM:TO=127.0.0.1:PORT->ADDRESS:PORT (port 0: any free one)"));
  }
  link.listen_port = static_cast<uint16_t>(port);
  link.shape = shape;
  return link;
}

absl::StatusOr<LinkEmulatorConfig> ReadLinkEmulatorConfig(const std::string& path, const std::string& profile) {
  try {  // yaml-cpp reports by exceptions
    const YAML::Node root = YAML::LoadFile(path);
    RETURN_IF_ERROR(CheckKeys(path, root, {"seed", "profile", "links", "ends"}));
    LinkEmulatorConfig config;
    if (root["seed"]) config.seed = root["seed"].as<uint64_t>();
    const std::string shared = root["profile"] ? root["profile"].as<std::string>() : profile;
    if (!root["links"] || !root["links"].IsSequence()) return At(path, root.Mark(), "links: a list is required");
    for (const YAML::Node& node : root["links"]) {
      ASSIGN_OR_RETURN(EmulatedLink link, ReadLink(path, node, shared));
      config.links.push_back(std::move(link));
    }
    for (const YAML::Node& node : root["ends"]) {
      ASSIGN_OR_RETURN(EmulatedEnd end, ReadEnd(path, node));
      config.ends.push_back(std::move(end));
    }
    return config;
  } catch (const YAML::BadFile&) {
    return absl::NotFoundError(absl::StrCat("--config: cannot read ", path));
  } catch (const YAML::Exception& error) {
    return At(path, error.mark, error.msg);
  }
}

}  // namespace stagecoach
