#!/usr/bin/env python3
"""Plans of synthetic fleets: seconds, share of the certified bound, and the baselines under the same cost model.

usage: run.py measure RESULTS [--workers 12 100 1000 10000] [--families ...] [--seeds 5] [--ours] [--build build]
       run.py report RESULTS... [--svg planner.svg]

measure appends a JSON line for each fleet to RESULTS; report prints the table of README.md (medians over seeds) and writes the plot. Of a
fleet that was measured several times the last line counts.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = ["mixed", "two-campuses", "dtfm-case-4", "home-uplinks", "half-behind-nat"]
BASELINES = ["equal", "random", "greedy-memory", "ravnest-ga", "ravnest-equal", "dtfm"]
COLOURS = dict(zip(FAMILIES, ["#1b6ca8", "#d1495b", "#4c956c", "#8e5ea2", "#c98a1b"]))


def measure(arguments):
    with open(arguments.results, "a", encoding="utf-8") as out:
        for workers in arguments.workers:
            for family in arguments.families:
                for seed in range(1, arguments.seeds + 1):
                    command = [f"{arguments.build}/bench/bench_planner", family, str(workers), str(seed)]
                    command += [] if arguments.ours else ["--baselines"]
                    line = subprocess.run(command, check=True, capture_output=True, text=True, timeout=230).stdout
                    out.write(line)
                    out.flush()


def share(row, planner):
    """Tokens a second over the bound; None where the planner does not plan so many workers."""
    own = row if planner == "ours" else row.get(planner)
    return None if own is None else own["tokens_per_second"] / row["bound_tokens_per_second"]


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def read(paths):
    fleets = {}
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                fleets[row["workers"], row["family"], row["seed"]] = row
    groups = collections.defaultdict(list)
    for (workers, family, _), row in fleets.items():
        # Fleets that no planner can serve have no bound.
        if "bound_tokens_per_second" in row:
            groups[workers, family].append(row)
    return groups


def times(ours, theirs):
    if theirs is None:
        return "-"
    if theirs == 0:
        return "none"
    ratio = ours / theirs
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}"


def report(arguments):
    groups = read(arguments.results)
    print("| workers | family | seeds | seconds | of the bound | least | " + " | ".join(BASELINES) + " |")
    print("|---|---|" + "---|" * (4 + len(BASELINES)))
    sizes = sorted({workers for workers, _ in groups})
    for workers in sizes:
        for family in FAMILIES:
            rows = groups.get((workers, family))
            if not rows:
                continue
            ours = median(share(row, "ours") for row in rows)
            cells = [times(ours, median(share(row, name) for row in rows)) for name in BASELINES]
            print(f"| {workers:,} | {family} | {len(rows)} | {median(row['seconds'] for row in rows):.3f} | {ours:.3f} | "
                  f"{min(share(row, 'ours') for row in rows):.3f} | " + " | ".join(cells) + " |")
    if arguments.svg:
        with open(arguments.svg, "w", encoding="utf-8") as out:
            out.write(plot(groups, sizes))


def plot(groups, sizes):
    """A panel for each size: a row for each planner, a dot for each family at its median share of the bound."""
    planners = ["ours"] + BASELINES
    row, left, width, top = 22, 110, 380, 46
    panel = top + row * len(planners) + 40
    columns = 2
    total_width = columns * (left + width + 40)
    total_height = (len(sizes) + columns - 1) // columns * panel + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
             'font-family="sans-serif" font-size="12">', f'<rect width="{total_width}" height="{total_height}" fill="white"/>']
    for index, workers in enumerate(sizes):
        x0 = index % columns * (left + width + 40) + left
        y0 = index // columns * panel + top
        bottom = y0 + row * len(planners)
        parts.append(f'<text x="{x0}" y="{y0 - 14}" font-weight="bold">{workers:,} workers</text>')
        for tick in range(0, 11, 2):
            x = x0 + width * tick / 10
            parts.append(f'<line x1="{x}" y1="{y0}" x2="{x}" y2="{bottom}" stroke="#ddd"/>')
            parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{tick / 10:.1f}</text>')
        for line, planner in enumerate(planners):
            y = y0 + row * (line + 0.5)
            weight = "bold" if planner == "ours" else "normal"
            parts.append(f'<text x="{x0 - 8}" y="{y + 4}" text-anchor="end" font-weight="{weight}">{planner}</text>')
            for family in FAMILIES:
                value = median(share(each, planner) for each in groups.get((workers, family), []))
                if value is None:
                    continue
                parts.append(f'<circle cx="{x0 + width * value:.1f}" cy="{y}" r="4.5" fill="{COLOURS[family]}" '
                             'fill-opacity="0.8"/>')
    y = total_height - 18
    for index, family in enumerate(FAMILIES):
        x = 40 + index * 150
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4.5" fill="{COLOURS[family]}"/><text x="{x + 9}" y="{y}">{family}</text>')
    parts.append(f'<text x="{40 + len(FAMILIES) * 150}" y="{y}">x: tokens/s over the bound</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("results")
    measuring.add_argument("--workers", type=int, nargs="+", default=[12, 100, 1000, 10000])
    measuring.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    measuring.add_argument("--seeds", type=int, default=5)
    measuring.add_argument("--ours", action="store_true", help="without the baselines")
    measuring.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"))
    reporting = commands.add_parser("report")
    reporting.add_argument("results", nargs="+")
    reporting.add_argument("--svg", default=os.path.join(HERE, "planner.svg"))
    arguments = parser.parse_args()
    measure(arguments) if arguments.command == "measure" else report(arguments)


if __name__ == "__main__":
    main()
