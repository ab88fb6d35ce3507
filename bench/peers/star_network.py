"""A star of network namespaces: N hosts around a hub, each joined to it by one emulated wide-area link (wan_link).

Every host has an uplink and a downlink of `rate_mbit`; two hosts are `rtt_ms` apart. Needs root. Everything made here is
removed on exit.
"""
import os
import subprocess
import time


class StarNetwork:
    def __init__(self, wan_link, hosts, rate_mbit, rtt_ms):
        self.prefix = f"sc{os.getpid() % 100000}"
        self.hub = self.prefix + "hub"
        self.wan_link, self.hosts, self.rate_mbit, self.rtt_ms = wan_link, hosts, rate_mbit, rtt_ms
        self.links = []

    def name(self, host):
        return f"{self.prefix}h{host}"

    def address(self, host):
        return f"10.98.{host}.1"

    def hub_address(self, host):
        return f"10.98.{host}.254"

    def on(self, host, command):
        return ["ip", "netns", "exec", self.hub if host is None else self.name(host)] + command

    def __enter__(self):
        def run(*command):
            subprocess.run(command, check=True)
        try:
            run("ip", "netns", "add", self.hub)
            run("ip", "-n", self.hub, "link", "set", "lo", "up")
            run(*self.on(None, ["sysctl", "-qw", "net.ipv4.ip_forward=1"]))
            for h in range(self.hosts):
                name = self.name(h)
                run("ip", "netns", "add", name)
                link = subprocess.Popen([self.wan_link, name, "wan0", self.hub, f"wan{h}",
                                         str(int(self.rtt_ms * 1000 / 4)), str(self.rate_mbit)], stdout=subprocess.PIPE, text=True)
                self.links.append(link)
                if link.stdout.readline().strip() != "ready":
                    raise RuntimeError("wan_link did not start")
                run("ip", "-n", name, "link", "set", "lo", "up")
                run("ip", "-n", name, "addr", "add", f"{self.address(h)}/24", "dev", "wan0")
                run("ip", "-n", name, "link", "set", "wan0", "mtu", "1400", "txqueuelen", "5000", "up")
                run("ip", "-n", self.hub, "addr", "add", f"{self.hub_address(h)}/24", "dev", f"wan{h}")
                run("ip", "-n", self.hub, "link", "set", f"wan{h}", "mtu", "1400", "txqueuelen", "5000", "up")
                run("ip", "-n", name, "route", "add", "default", "via", self.hub_address(h))
            time.sleep(0.2)  # routes of TUN devices appear a moment after "up"
            return self
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(self, *_):
        for link in self.links:
            link.kill()
            link.wait()
        for h in range(self.hosts):
            subprocess.run(["ip", "netns", "del", self.name(h)], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "del", self.hub], check=False, stderr=subprocess.DEVNULL)
