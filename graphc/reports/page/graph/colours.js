// Colours of boxes: by the kind of operator, cost, memory, device, or what a pass changed.
"use strict";

const COLOURINGS = {
  kind: "operator", flops: "operations", bytes: "bytes moved", made: "memory of results",
  device: "device", change: "what the pass changed",
};

const KINDS = [
  ["input", /^(feed|variable|argument|Placeholder|ReadVariable|Variable)/],
  ["output", /^(fetch|result|new value|Assign)/],
  ["constant", /^(Constant|Iota|Zeros|Ones|Fill|Full|Eye)/],
  ["matrix", /(MatMul|Einsum|Dot|Conv|Attention|Linear|Tensordot|Gemm|Cholesky|Solve)/i],
  ["exchange", /(AllReduce|AllGather|ReduceScatter|Permute$|AllToAll|Send|Recv|PSum)/i],
  ["control", /(While|Scan|Fori|Cond|Map|Switch|Call|Loop|VJP|Fold|Recurrence)/],
  ["shape", /(Reshape|Transpose|Broadcast|Slice|Concat|Gather|Pad|Squeeze|Expand|Stack|Split|Tile|Cast|Identity|Reverse)/],
  ["reduce", /(Reduce|Sum$|Mean|Max$|Arg|Cum|Softmax|Norm|Moments|Pool|LogSumExp|Entropy)/],
  ["random", /(Random|Dropout|Key|Uniform|Normal)/],
];

/** What kind of operator it is. Everything else works element by element, as a rule. */
function kindOf(op) {
  const found = KINDS.find(([, pattern]) => pattern.test(op));
  return found ? found[0] : "element";
}

class Colours {
  constructor() { this.by = "kind"; this.refresh(); this.devices = new Map(); }

  /** Reads the colours of the style sheet: light or dark. */
  refresh() {
    const style = getComputedStyle(document.documentElement);
    this.of = name => style.getPropertyValue(`--${name}`).trim();
    this.ink = this.of("ink"); this.soft = this.of("soft"); this.line = this.of("line");
    this.back = this.of("back"); this.box = this.of("box"); this.group = this.of("group");
    this.accent = this.of("accent"); this.edge = this.of("edge");
    this.kinds = new Map(["input", "output", "constant", "matrix", "exchange", "control", "shape",
      "reduce", "random", "element"].map(kind => [kind, this.of(`kind-${kind}`)]));
    this.palette = [1, 2, 3, 4, 5, 6, 7, 8].map(i => this.of(`lane-${i}`));
    this.added = this.of("added"); this.changed = this.of("changed"); this.hot = this.of("hot");
  }

  device(name) {
    if (!name) return this.box;
    const number = DATA.devices.indexOf(name);
    return this.palette[number % this.palette.length];
  }

  /** [the colour of a mark, the part of heat in 0..1 that fills the box, or null] */
  mark(item, total) {
    if (this.by === "kind") {
      if (item instanceof Group) return [item.owner ? this.kinds.get("control") : this.line, null];
      return [this.kinds.get(kindOf(item.op)), null];
    }
    if (this.by === "device") {
      const devices = item instanceof Group ? [...item.devices.keys()].filter(Boolean) : [item.device];
      return [devices.length === 1 && devices[0] ? this.device(devices[0]) : this.line, null, devices];
    }
    if (this.by === "change") {
      const part = item instanceof Group ? item.changes / Math.max(1, item.units) : null;
      if (item instanceof Group) return [item.changes ? this.changed : this.line, part];
      return [{ added: this.added, changed: this.changed, "": this.line }[item.change], item.change ? 0.5 : null];
    }
    const value = item[this.by] ?? 0;
    return [this.hot, total[this.by] ? Math.sqrt(value / total[this.by]) : 0];
  }

  legend() {
    const entry = (colour, text) => element("span", {}, element("i", { style: `background:${colour}` }), text);
    if (this.by === "kind") {
      const names = { element: "element by element", matrix: "matrix products", shape: "shapes and copies", control: "loops and branches", reduce: "reductions" };
      return [...this.kinds].map(([kind, colour]) => entry(colour, names[kind] ?? kind));
    }
    if (this.by === "device") return DATA.devices.map(name => entry(this.device(name), name));
    if (this.by === "change") return [entry(this.added, "new"), entry(this.changed, "changed")];
    return [entry(this.hot, `more colour: a larger part of all ${COLOURINGS[this.by]}`)];
  }
}
