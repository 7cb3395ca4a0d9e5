#!/usr/bin/env python3
"""CPU per request of fencegate beside nginx, HAProxy and nginx + auth_request, interleaved in one run.

The proxy runs on core 0, the load (wrk) and the store (examples/bench_sink) on core 1. The figure is the CPU
time of every process on the data path over what the store counted in the same window. A fixed piece of work
is timed on core 0 around each run ("yard"), since a shared machine drifts: ratios are of CPU per yard.
Only loopback is used; every process started is ended by its id.

    bench/run.py --fencegate target/release/fencegate --sink target/release/examples/bench_sink [--rounds 5]
"""
import argparse, hashlib, json, os, re, shutil, signal, socket, statistics, subprocess, tempfile, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TICK = os.sysconf("SC_CLK_TCK")
LOADS = {  # name: (method, body bytes, path, connections, seconds)
    "PUT 1 KiB": ("PUT", 1 << 10, "/bench/key", 64, 3),
    "PUT 64 KiB": ("PUT", 64 << 10, "/bench/key", 64, 3),
    "PUT 8 MiB": ("PUT", 8 << 20, "/bench/key", 16, 4),
    "GET 1 KiB": ("GET", 0, "/bench/key/1024", 64, 3),
    "GET 8 MiB": ("GET", 0, "/bench/key/8388608", 16, 4),
}


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ready(at):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", at), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on {at}")


def cpu(pids):
    """User and system seconds of the processes and their children."""
    total = 0
    for pid in pids:
        group = [pid] + [int(c) for c in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]
        for one in group:
            with open(f"/proc/{one}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def rss(pids, what="VmHWM"):
    total = 0
    for pid in pids:
        group = [pid] + [int(c) for c in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]
        for one in group:
            with open(f"/proc/{one}/status") as status:
                total += int(re.search(what + r":\s+(\d+)", status.read()).group(1))
    return total / 1024


def yard():
    """Seconds for a fixed piece of work on core 0."""
    me = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    data = bytes(1 << 20)
    start = time.process_time()
    for _ in range(24):
        hashlib.sha256(data).digest()
    end = time.process_time()
    os.sched_setaffinity(0, me)
    return end - start


class Bench:
    def __init__(self, args):
        self.args, self.dir, self.processes = args, tempfile.mkdtemp(prefix="fencegate-bench-"), []
        self.sink = port()
        self.start(["taskset", "-c", "1", args.sink, f"127.0.0.1:{self.sink}"])
        ready(self.sink)
        self.peers = {}

    def start(self, command, **more):
        log = open(os.path.join(self.dir, "log"), "a")
        process = subprocess.Popen(command, stdout=log, stderr=log, **more)
        self.processes.append(process)
        return process

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.dir)

    def nginx(self, name, http, extra=""):
        at = port()
        conf = os.path.join(self.dir, name.replace(" ", "-") + ".conf")
        with open(conf, "w") as f:
            f.write(f"""daemon off; worker_processes 1; pid {conf}.pid; error_log {conf}.err;
events {{ worker_connections 4096; }}
http {{ access_log off; client_max_body_size 0; client_body_temp_path {self.dir}/body; proxy_temp_path {self.dir}/proxy;
fastcgi_temp_path {self.dir}/f; uwsgi_temp_path {self.dir}/u; scgi_temp_path {self.dir}/s; keepalive_requests 100000000;
upstream store {{ server 127.0.0.1:{self.sink}; keepalive 128; keepalive_requests 100000000; }}
{extra}
server {{ listen 127.0.0.1:{at}; location / {{ proxy_pass http://store; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; {http} }}
{self.check} }} }}""")
        process = self.start(["taskset", "-c", "0", "nginx", "-c", conf, "-p", self.dir])
        ready(at)
        return at, [process.pid]

    def setup(self):
        self.check = ""
        plain = "proxy_request_buffering off;"
        self.peers["nginx"] = (*self.nginx("nginx", plain), False)
        self.peers["nginx, 256 KiB buffers"] = (*self.nginx("nginx-tuned", plain + "client_body_buffer_size 256k; proxy_buffers 8 256k; proxy_buffer_size 256k; proxy_busy_buffers_size 512k;"), False)
        checker = port()
        check = self.start(["taskset", "-c", "0", self.args.sink, f"127.0.0.1:{checker}"])
        ready(checker)
        self.check = f"location = /check {{ internal; proxy_pass http://checker/check/0; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}"
        at, pids = self.nginx("nginx-auth", plain + "auth_request /check;", f"upstream checker {{ server 127.0.0.1:{checker}; keepalive 128; keepalive_requests 100000000; }}")
        self.peers["nginx + auth_request"] = (at, pids + [check.pid], False)
        self.check = ""
        self.haproxy()
        self.fencegate()
        self.peers["direct"] = (self.sink, [], False)

    def haproxy(self):
        at = port()
        conf = os.path.join(self.dir, "haproxy.cfg")
        with open(conf, "w") as f:
            f.write(f"""global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 3s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend f
  bind 127.0.0.1:{at}
  default_backend b
backend b
  server s 127.0.0.1:{self.sink}
""")
        process = self.start(["taskset", "-c", "0", "haproxy", "-db", "-f", conf])
        ready(at)
        self.peers["HAProxy"] = (at, [process.pid], False)

    def fencegate(self):
        at, admin = port(), port()
        conf = os.path.join(self.dir, "fencegate.toml")
        with open(conf, "w") as f:
            f.write(f"""[proxy]
listen = "127.0.0.1:{at}"
[upstream]
kind = "s3"
url = "http://127.0.0.1:{self.sink}"
torn_uploads = "discarded"
final_answers = true
linearizable = true
sole_path = true
[lease]
path = "{self.dir}/fencegate.redb"
[admin]
listen = "127.0.0.1:{admin}"
[[rule]]
match = "bench/**"
resource = "bench"
""")
        process = self.start(["taskset", "-c", "0", self.args.fencegate, "serve", "--config", conf], env={**os.environ, "FENCEGATE_LOG": "warn"})
        ready(admin)
        ready(at)
        self.token = subprocess.run([self.args.fencegate, "--version"], capture_output=True, text=True).stdout
        server = f"http://127.0.0.1:{admin}"
        self.token = subprocess.run([self.args.fencegate, "lease", "acquire", "bench", "--ttl", "1h", "--server", server], capture_output=True, text=True, check=True).stdout.strip()
        self.peers["fencegate"] = (at, [process.pid], True)

    def count(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.sink}/count") as answer:
            return int(answer.read())

    def run(self, peer, load):
        at, pids, fenced = self.peers[peer]
        method, size, path, connections, seconds = LOADS[load]
        seconds = seconds * self.args.scale
        command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency", "-s", os.path.join(HERE, "put.lua"),
                   f"http://127.0.0.1:{at}{path}", "--", method, str(size)] + ([self.token] if fenced else [])
        before_yard = yard()
        before, cpu_before, clock = self.count(), cpu(pids), time.monotonic()
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        took, used, served = time.monotonic() - clock, cpu(pids) - cpu_before, self.count() - before
        measure = (before_yard + yard()) / 2
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
        if bad or served == 0:
            raise SystemExit(f"{peer}, {load}: the run is void\n{out}")
        per = used / served * 1e6
        return {"cpu_us": per, "per_yard": per / measure, "rate": served / took, "p50": re.search(r"50%\s+(\S+)", out).group(1)}

    def alone(self, peer):
        at, _, fenced = self.peers[peer]
        command = ["taskset", "-c", "1", "wrk", "-t1", "-c1", f"-d{max(1, round(2 * self.args.scale))}s", "--latency", "-s", os.path.join(HERE, "put.lua"),
                   f"http://127.0.0.1:{at}/bench/key", "--", "PUT", "1024"] + ([self.token] if fenced else [])
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", out).groups()
        return float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--fencegate", required=True)
    parse.add_argument("--sink", required=True)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--scale", type=float, default=1, help="length of each run, 1 = a few seconds")
    parse.add_argument("--only", help="only loads whose name contains this")
    parse.add_argument("--peers", help="only these, separated by commas")
    parse.add_argument("--json", help="write every figure to this file")
    args = parse.parse_args()
    bench = Bench(args)
    figures = {}
    try:
        bench.setup()
        peers = [p for p in bench.peers if not args.peers or p in args.peers.split(",")]
        loads = [l for l in LOADS if not args.only or args.only in l]
        for round_ in range(args.rounds):
            for load in loads:
                for peer in peers:
                    if peer == "direct":
                        continue
                    figures.setdefault(load, {}).setdefault(peer, []).append(bench.run(peer, load))
            for peer in peers:
                figures.setdefault("alone", {}).setdefault(peer, []).append(bench.alone(peer))
        memory = {peer: rss(bench.peers[peer][1]) for peer in peers if bench.peers[peer][1]}
    finally:
        bench.stop()
    print("| load | peer | CPU us a request | ratio to nginx (by yard) | req/s |\n| --- | --- | ---: | ---: | ---: |")
    for load in loads:
        base = figures[load].get("nginx")
        for peer, runs in figures[load].items():
            ratio = statistics.median(r["per_yard"] / b["per_yard"] for r, b in zip(runs, base)) if base else float("nan")
            print(f"| {load} | {peer} | {statistics.median(r['cpu_us'] for r in runs):.1f} | {ratio:.2f} | {statistics.median(r['rate'] for r in runs):,.0f} |")
    print("\n| peer | p50 of one PUT 1 KiB at a time, us | peak RSS, MiB |\n| --- | ---: | ---: |")
    for peer, runs in figures["alone"].items():
        print(f"| {peer} | {statistics.median(runs):.0f} | {memory.get(peer, 0):.0f} |")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(figures, f, indent=1)


if __name__ == "__main__":
    main()
