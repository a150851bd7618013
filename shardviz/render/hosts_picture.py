"""GPUs on their hosts, those of one NVLink domain together; where there are too many, a tile for each host."""

from __future__ import annotations

import math

import numpy as np

from shardviz.costs.placement import Placement
from shardviz.records.amounts import plural
from shardviz.render.machine_parts import MOST_NODES, WIDE, Frame, Node, Picture, box, place_of


def hosts_picture(placed: Placement) -> Picture:
    """The picture of a machine of GPUs with a mesh on it."""
    machine = placed.machine
    hosts, per_host = machine.topology
    domain_hosts = hosts // machine.domains
    order = np.asarray(placed.order)
    whole_hosts = machine.size > MOST_NODES
    where = place_of(placed)
    if whole_hosts:
        many = hosts
        inside, per_row = 1, 1
        number_of = order // per_host
    else:
        many, inside = machine.size, per_host
        even = [d for d in range(1, min(12, per_host // 2) + 1) if per_host % d == 0]
        per_row = per_host if per_host <= 4 else max(even)
        number_of = order
    rows = -(-inside // per_row)
    together = domain_hosts > 1
    size = 22.0 if not whole_hosts else max(12.0, min(34.0, WIDE / math.ceil(math.sqrt(many * 1.6)) - 4))
    pitch = size + 3
    host_wide, host_high = per_row * pitch + 7, rows * pitch + (21 if not whole_hosts else 7)
    across = max(1, int(WIDE // (host_wide + 6)))
    if together:
        across = max(d for d in range(1, domain_hosts + 1) if domain_hosts % d == 0 and d <= across)
    elif not whole_hosts:
        across = min(across, hosts, max(2, 2 ** int(math.log2(across)))) if hosts > 1 else 1
    groups = machine.domains if together else 1
    in_group = hosts // groups
    columns, lines = min(across, in_group), -(-in_group // across)
    bar = 12.0
    group_wide = columns * (host_wide + 6) + 10
    group_high = lines * (host_high + 6) + (24 + bar if together else 6)
    group_row = max(1, int((WIDE + 20) // group_wide)) if together else 1
    nodes: list[Node] = [Node(0, 0, (), "")] * many
    frames, switch = [], {}
    for host in range(hosts):
        group, index = (host // domain_hosts, host % domain_hosts) if together else (0, host)
        gx, gy = group % group_row * (group_wide + 8), group // group_row * (group_high + 8)
        x0 = gx + 8 + index % across * (host_wide + 6)
        y0 = gy + (20 if together else 4) + index // across * (host_high + 6)
        if together and index == 0:
            frames.append(
                Frame("domain", box(gx + 2, gy + 2, group_wide - 2, group_high - 2), f"NVLink domain {group}")
            )
        if not whole_hosts:
            frames.append(Frame("host", box(x0, y0, host_wide, host_high), f"host {host}"))
        bar_y = gy + group_high - bar / 2 - 3 if together else y0 + host_high - 5
        for i in range(inside):
            number = host if whole_hosts else host * per_host + i
            x = x0 + 5 + (i % per_row) * pitch + size / 2
            y = y0 + (14 if not whole_hosts else 4) + (i // per_row) * pitch + size / 2 - 2
            listed = range(host * per_host, (host + 1) * per_host) if whole_hosts else [number]
            places = tuple(sorted(int(where[d]) for d in listed))
            text = f"host {host}" + (f", NVLink domain {group}" if together else "")
            text = f"{text}, {plural(per_host, 'GPU')}" if whole_hosts else f"GPU {i} of {text}"
            nodes[number] = Node(x, y, places, text)
            switch[number] = bar_y
    grain = f"a tile is a host of {per_host} GPUs; all {machine.size:,} are too many to draw" if whole_hosts else ""
    wide = min(group_row, groups) * (group_wide + 8) if together else group_wide + 4
    high = -(-groups // group_row) * (group_high + 8) + 4
    empty: dict[str | None, list] = {}
    return Picture(wide, high, (size, size - 3), tuple(nodes), number_of, tuple(frames), empty, {}, switch, grain)
