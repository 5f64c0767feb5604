// The data of the report: programs, their nodes, and what changed from one to the next.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);

/** `[4, 3, 9, 1]` means 4, 5, 6, 9. See `ranges` in node_table.py. */
function expanded(ranges) {
  const numbers = [];
  for (let i = 0; i < ranges.length; i += 2) {
    for (let k = 0; k < ranges[i + 1]; k++) numbers.push(ranges[i] + k);
  }
  return numbers;
}

class Unit {
  /** A node, or an input or output, of one program. `row` is null for inputs and outputs. */
  constructor(number, row, kind) {
    this.number = number; this.row = row; this.kind = kind;
    this.key = ""; this.name = ""; this.op = "";
    this.inputs = []; this.outputs = []; // numbers of tensors
    this.before = []; this.after = []; // units
    this.bodies = []; // programs, of loops and branches
    this.flops = null; this.bytes = null; this.made = 0;
    this.change = ""; // "added" or "changed" by the pass before
    this.writes = []; // variables whose new value it computes
  }
  get type() { return this.outputs.map(typeOf).join(", "); }
  /** The device that the user asked for, or else the only one of the placement log. */
  get device() {
    if (this.row && this.row.d !== undefined) return DATA.devices[this.row.d];
    const places = this.name ? placesOf(this.name) : [];
    return places.length === 1 ? places[0] : "";
  }
  /** What a search looks in. A node of a rolled block has the names that it stands for, too. */
  get searched() {
    const turns = this.row && this.row.t ? this.row.t.map(([name]) => name) : [];
    this._searched ??= [this.name, this.op, this.type, this.device, lineText(this.line), ...turns].join("\n").toLowerCase();
    return this._searched;
  }
  get line() { return this.row && this.row.s !== undefined ? this.row.s : -1; }
}

const PLACES = new Map(DATA.placement.rows.map(([name, , devices]) => [name, devices.map(d => DATA.devices[d])]));

/** The devices of a node or variable in the placement log. */
function placesOf(name) { return PLACES.get(name) ?? []; }

function typeOf(tensor) { return DATA.types[DATA.tensors[tensor][0]]; }
function bytesOf(tensor) { return DATA.tensors[tensor][1]; }

/** The last node that a value is in memory for. Fetched values and new state live until the end. */
function lastNode(end) { return end < DATA.memory.live.length ? String(end + 1) : "the end"; }

/** `train.py:12` of the number of a line. */
function lineText(line) {
  if (line < 0) return "";
  const [file, number] = DATA.lines[line];
  return `${baseName(DATA.files[file].name)}:${number}`;
}

function nodeUnit(number, prefix) {
  const row = DATA.nodes[number], unit = new Unit(number, row, "node");
  unit.op = DATA.operators[row.o];
  unit.name = row.n;
  unit.key = `${prefix}${row.n || `#${number}`}`;
  unit.inputs = row.i; unit.outputs = row.u;
  unit.flops = row.f ?? null; unit.bytes = row.b ?? null;
  unit.made = row.u.reduce((sum, tensor) => sum + (bytesOf(tensor) ?? 0), 0);
  return unit;
}

function portUnit([name, kind, tensor], isInput, prefix) {
  const unit = new Unit(tensor, null, kind);
  unit.name = name;
  unit.op = isInput ? { feed: "feed", state: "variable", arg: "argument" }[kind]
    : { fetch: "fetch", state: "new value", result: "result" }[kind];
  unit.key = `${prefix}${isInput ? "in" : "out"}:${kind}:${name}`;
  if (isInput) { unit.outputs = [tensor]; unit.made = bytesOf(tensor) ?? 0; } else unit.inputs = [tensor];
  return unit;
}

/** A program, or the body of a node, with its units in program order. */
class Code {
  constructor(data, prefix = "") {
    this.name = data.name;
    const numbers = expanded(data.nodes);
    const nodes = numbers.map(number => nodeUnit(number, prefix));
    const seen = new Map();
    for (const unit of nodes) { // names of bodies' nodes may repeat
      const count = seen.get(unit.key) ?? 0;
      seen.set(unit.key, count + 1);
      if (count) unit.key += `#${count}`;
      unit.bodies = (unit.row.r ?? []).map((body, i) => new Code(body, `${unit.key}/${i}/`));
    }
    const producers = new Map();
    for (const unit of nodes) for (const tensor of unit.outputs) producers.set(tensor, unit);
    const inputs = data.inputs.map(port => portUnit(port, true, prefix));
    for (const unit of inputs) producers.set(unit.outputs[0], unit);
    const outputs = [];
    for (const port of data.outputs) {
      const producer = producers.get(port[2]);
      if (port[1] === "state" && producer) producer.writes.push(port[0]);
      else outputs.push(portUnit(port, false, prefix));
    }
    this.nodes = nodes;
    this.units = [...inputs, ...nodes, ...outputs];
    this._connect(producers);
  }

  _connect(producers) {
    const byName = new Map(this.nodes.map(unit => [unit.name, unit]));
    for (const unit of this.units) {
      const sources = unit.inputs.map(tensor => producers.get(tensor));
      if (unit.row && unit.row.c) sources.push(...unit.row.c.map(name => byName.get(name)));
      for (const source of new Set(sources)) {
        if (!source || source === unit) continue;
        unit.before.push(source); source.after.push(unit);
      }
    }
  }

  /** Every unit, with those of bodies. */
  *all() {
    for (const unit of this.units) {
      yield unit;
      for (const body of unit.bodies) yield* body.all();
    }
  }
}

const PROGRAMS = new Map();

/** A program by its number. Units say what changed since the program before. */
function programOf(number) {
  let made = PROGRAMS.get(number);
  if (!made) {
    made = new Code(DATA.programs[number]);
    made.removed = number > 0 ? markChanges(made, DATA.programs[number - 1]) : [];
    made.byKey = new Map([...made.all()].map(unit => [unit.key, unit]));
    PROGRAMS.set(number, made);
    if (PROGRAMS.size > 6) PROGRAMS.delete(PROGRAMS.keys().next().value);
  }
  return made;
}

/** Whether a program has a node, input or output of a name. */
function hasName(program, name) {
  if ([...program.inputs, ...program.outputs].some(([found]) => found === name)) return true;
  return [...rowsOf(program)].some(number => DATA.nodes[number].n === name);
}

/** All rows of a program, with those of bodies. */
function rowsOf(data, found = new Set()) {
  for (const number of expanded(data.nodes)) {
    found.add(number);
    for (const body of DATA.nodes[number].r ?? []) rowsOf(body, found);
  }
  return found;
}

/** Marks the nodes that are new or changed, and returns the rows of those that are gone. */
function markChanges(code, dataBefore) {
  const before = rowsOf(dataBefore), after = new Set(), names = new Set();
  for (const number of before) names.add(DATA.nodes[number].n);
  const namesAfter = new Set();
  for (const unit of code.all()) {
    if (!unit.row) continue;
    after.add(unit.number); namesAfter.add(unit.name);
    if (!before.has(unit.number)) unit.change = unit.name && names.has(unit.name) ? "changed" : "added";
  }
  return [...before].filter(number => !after.has(number) && !namesAfter.has(DATA.nodes[number].n))
    .map(number => DATA.nodes[number]);
}
