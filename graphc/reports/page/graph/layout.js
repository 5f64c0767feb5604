// Places boxes. Each open group is laid out by dagre on its own, once, when it is first open: its
// folded groups are single boxes. So the time depends on what is unfolded, not on the graph.
"use strict";

const BOX = { width: 160, height: 34, most: 270 };
const PAD = 14, HEAD = 22; // around the children of an open group, and for its title
const MANY = 9; // a box with more users in its group has a line to the first only: they would cover the others

const LAYERED = new Map(); // what dagre found: blocks are often alike, and passes keep most of them
const MOST_KEPT = 4000;

/** dagre's positions: `boxes` are [width, height], `edges` are [from, to, weight] by number. */
function layered(boxes, edges) {
  const key = JSON.stringify([boxes, edges]);
  let found = LAYERED.get(key);
  if (found) return found;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 14, edgesep: 8, ranksep: 30,
    ranker: boxes.length > 40 ? "longest-path" : "network-simplex" });
  for (const [i, [width, height]] of boxes.entries()) graph.setNode(`n${i}`, { width, height });
  for (const [from, to, weight] of edges) graph.setEdge(`n${from}`, `n${to}`, { weight });
  dagre.layout(graph);
  const { width, height } = graph.graph();
  found = {
    boxes: boxes.map((_, i) => { const { x, y, width, height } = graph.node(`n${i}`); return [x, y, width, height]; }),
    lines: edges.map(([from, to]) => graph.edge(`n${from}`, `n${to}`).points.map(({ x, y }) => [x, y])),
    size: [width, height],
  };
  if (LAYERED.size >= MOST_KEPT) LAYERED.clear();
  LAYERED.set(key, found);
  return found;
}

class Layouts {
  constructor(tree) {
    this.tree = tree;
    this.open = new Set([tree.root]);
    this.edges = new Map(); // group -> from -> to -> the tensors
    this.sized = false;
    this.placed = new Map(); // group -> {width, height, places, lines}
    this.most = { cost: 0, made: 0 };
    this._collect();
  }

  /** The edges between the children of each group, from those between units. */
  _collect() {
    for (const [unit, home] of this.tree.home) {
      for (const user of unit.after) {
        const other = this.tree.home.get(user);
        if (other) this._edge(unit, home, user, other);
      }
    }
  }

  _edge(from, fromHome, to, toHome) {
    let a = from.bodies.length ? fromHome : from, b = to.bodies.length ? toHome : to;
    const above = [];
    for (let item = a; item;) { above.push(item); item = item instanceof Group ? item.parent : this.tree.home.get(item); }
    const index = new Map(above.map((item, i) => [item, i]));
    let below = b, at = b instanceof Group ? b.parent : this.tree.home.get(b);
    while (at && !index.has(at)) { below = at; at = at.parent; }
    const depth = index.get(at);
    if (!at || !depth) return; // one of them contains the other
    const source = above[depth - 1];
    if (source === below) return;
    const rows = this.edges.get(at) ?? new Map();
    const targets = rows.get(source) ?? new Map();
    const count = (targets.get(below) ?? 0) + 1;
    targets.set(below, count); rows.set(source, targets); this.edges.set(at, rows);
  }

  isOpen(item) { return item instanceof Group && this.open.has(item); }

  /** Opens or folds a group; groups around it are laid out again. */
  toggle(group, open = !this.open.has(group)) {
    if (group === this.tree.root || open === this.open.has(group)) return;
    if (open) this.open.add(group); else this.open.delete(group);
    for (let at = group; at; at = at.parent) this.placed.delete(at);
  }

  foldAll() { this.open = new Set([this.tree.root]); this.placed.clear(); }

  /** The folded groups among what is visible. */
  folded(group = this.tree.root, found = []) {
    for (const child of group.children) {
      if (!(child instanceof Group)) continue;
      if (this.isOpen(child)) this.folded(child, found); else found.push(child);
    }
    return found;
  }

  /** How many boxes are visible. */
  count(group = this.tree.root) {
    let sum = 0;
    for (const child of group.children) sum += 1 + (this.isOpen(child) ? this.count(child) : 0);
    return sum;
  }

  sizeOf(item) {
    if (this.isOpen(item)) { const { width, height } = this.place(item); return [width, height]; }
    if (!this.sized) return [BOX.width, BOX.height];
    const total = this.tree.root.flops || 1;
    const part = Math.sqrt(Math.min(1, (item.flops ?? 0) / total));
    return [BOX.width + part * (BOX.most - BOX.width), BOX.height + part * 40];
  }

  /** Where the children of an open group are, from its own corner. */
  place(group) {
    let made = this.placed.get(group);
    if (!made) { made = this._place(group); this.placed.set(group, made); }
    return made;
  }

  _place(group) {
    const rows = this.edges.get(group) ?? new Map();
    const connected = new Set(), kept = [], many = new Map();
    for (const [source, targets] of rows) {
      if (targets.size > MANY) many.set(source, targets.size);
      const shown = targets.size > MANY ? [...targets].slice(0, 1) : targets; // so that it stands beside its first user
      for (const [target, count] of shown) { kept.push([source, target, count]); connected.add(source); connected.add(target); }
    }
    const children = group.children.filter(child => connected.has(child));
    const loose = group.children.filter(child => !connected.has(child));
    const places = new Map(), lines = [];
    const top = group === this.tree.root ? PAD : PAD + HEAD;
    let [width, height] = children.length ? this._layered(children, kept, places, lines, top) : [0, 0];
    [width, height] = this._grid(loose, places, width, height, top);
    return { width: Math.max(width + 2 * PAD, BOX.width), height: height + top + PAD, places, lines, many };
  }

  _layered(children, edges, places, lines, top) {
    const ids = new Map(children.map((child, i) => [child, i]));
    const found = layered(children.map(child => this.sizeOf(child)),
      edges.map(([source, target, count]) => [ids.get(source), ids.get(target), Math.min(count, 4)]));
    for (const [child, i] of ids) {
      const [x, y, width, height] = found.boxes[i];
      places.set(child, [PAD + x - width / 2, top + y - height / 2, width, height]);
    }
    for (const [i, [source, target, count]] of edges.entries()) {
      lines.push({ source, target, count, points: found.lines[i].map(([x, y]) => [PAD + x, top + y]) });
    }
    return found.size;
  }

  /** Boxes without lines, in rows below the others. */
  _grid(loose, places, width, height, top) {
    if (!loose.length) return [width, height];
    const sizes = loose.map(child => this.sizeOf(child));
    const area = sizes.reduce((sum, [w, h]) => sum + (w + 14) * (h + 14), 0);
    const limit = Math.max(width, 1.6 * Math.sqrt(area), BOX.width);
    let x = 0, y = height ? height + 24 : 0, row = 0, right = width;
    for (const [i, child] of loose.entries()) {
      const [w, h] = sizes[i];
      if (x && x + w > limit) { x = 0; y += row + 14; row = 0; }
      places.set(child, [PAD + x, top + y, w, h]);
      right = Math.max(right, x + w); row = Math.max(row, h); x += w + 14;
    }
    return [right, y + row];
  }

  /** The rectangle of a visible item in the whole picture; null if it is in a folded group. */
  rectangle(item) {
    let x = 0, y = 0, at = item, size = null;
    if (item === this.tree.root) { const { width, height } = this.place(item); return [0, 0, width, height]; }
    while (at !== this.tree.root) {
      const parent = at instanceof Group ? at.parent : this.tree.home.get(at);
      if (!parent || !this.open.has(parent)) return null;
      const place = this.place(parent).places.get(at);
      size ??= [place[2], place[3]];
      x += place[0]; y += place[1]; at = parent;
    }
    return [x, y, ...size];
  }

  /** The item itself if it is visible, or else the folded group around it. */
  visible(item) {
    if (item instanceof Unit && item.bodies.length) item = this.tree.home.get(item);
    const around = this.tree.around(item);
    return around.find(group => !this.open.has(group)) ?? item;
  }
}
