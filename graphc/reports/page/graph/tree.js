// The tree of name scopes, bodies and nodes, which can be folded.
"use strict";

const MOST_CHILDREN = 72; // in one group; more are divided in program order
const MOST_DEEP = 60; // scopes in scopes; the names of deeper ones are joined

class Group {
  /** `kind` is "root", "scope", "body" (of a loop or branch) or "part" (of a long group). */
  constructor(kind, title, key, parent) {
    this.kind = kind; this.title = title; this.key = key; this.parent = parent;
    this.children = []; // groups and units, in program order
    this.scopes = new Map();
    this.units = 0; this.flops = 0; this.bytes = 0; this.made = 0;
    this.devices = new Map(); this.operators = new Map(); this.changes = 0;
    this.owner = null; // of a loop or branch: its unit, whose place the group takes
  }
}

class Tree {
  constructor(code) {
    this.home = new Map(); // unit -> its group
    this.groups = new Map(); // key -> group
    this.root = this._group("root", "", "", null);
    this._fill(this.root, code);
    this._finish(this.root);
  }

  _group(kind, title, key, parent) {
    let unique = key;
    for (let i = 2; this.groups.has(unique); i++) unique = `${key}~${i}`;
    const group = new Group(kind, title, unique, parent);
    this.groups.set(unique, group);
    return group;
  }

  /** Puts the units of a program into scopes below `group`. */
  _fill(group, code) {
    const strip = commonScope(code);
    for (const unit of code.units) {
      const path = scopePath(unit).slice(strip);
      let at = group;
      for (const part of path) {
        let next = at.scopes.get(part);
        if (!next) {
          next = this._group("scope", part, `${at.key}${part}/`, at);
          at.scopes.set(part, next); at.children.push(next);
        }
        at = next;
      }
      this._place(unit, at);
    }
  }

  _place(unit, at) {
    if (!unit.bodies.length) { at.children.push(unit); this.home.set(unit, at); return; }
    const loop = this._group("body", lastPart(unit.name) || unit.op, `${unit.key}()`, at);
    loop.owner = unit;
    at.children.push(loop);
    this.home.set(unit, loop);
    for (const [i, body] of unit.bodies.entries()) {
      const inner = unit.bodies.length === 1 ? loop
        : this._group("body", `body ${i}: ${body.name}`, `${unit.key}(${i})`, loop);
      if (inner !== loop) loop.children.push(inner);
      this._fill(inner, body);
    }
  }

  /** Sums over groups; scopes with one node are no scopes, and a scope with one scope is one with it; long groups are divided. */
  _finish(group) {
    group.children = group.children.map(child => {
      if (!(child instanceof Group)) return child;
      this._finish(child);
      const only = child.children.length === 1 ? child.children[0] : null;
      if (child.kind === "scope" && only && !(only instanceof Group)) {
        this.home.set(only, group); this.groups.delete(child.key);
        return only;
      }
      if (child.kind === "scope" && only && only.kind === "scope") {
        only.title = `${child.title}/${only.title}`; only.parent = group; this.groups.delete(child.key);
        return only;
      }
      return child;
    });
    for (const child of group.children) addTo(group, child);
    if (group.owner) { // the cost of a loop is that of all its iterations
      group.flops = group.owner.flops ?? 0; group.bytes = group.owner.bytes ?? 0;
      group.made = group.owner.made;
      if (group.owner.change) group.changes += 1;
    }
    if (group.children.length > MOST_CHILDREN) this._divide(group);
  }

  _divide(group) {
    const children = group.children, count = Math.ceil(children.length / MOST_CHILDREN);
    const parts = Math.min(count, MOST_CHILDREN), length = Math.ceil(children.length / parts);
    group.children = [];
    for (let i = 0; i < children.length; i += length) {
      const few = children.slice(i, i + length);
      const title = `${i + 1} – ${i + few.length} of ${children.length}`;
      const part = this._group("part", title, `${group.key}[${i}]`, group);
      part.children = few;
      for (const child of few) {
        if (child instanceof Group) child.parent = part; else this.home.set(child, part);
        addTo(part, child);
      }
      group.children.push(part);
      if (few.length > MOST_CHILDREN) this._divide(part);
    }
  }

  /** The groups around a unit or group, from the root. */
  around(item) {
    const path = [];
    let at = item instanceof Group ? item.parent : this.home.get(item);
    for (; at; at = at.parent) path.unshift(at);
    return path;
  }
}

function addTo(group, child) {
  const isGroup = child instanceof Group;
  group.units += isGroup ? child.units + (child.owner ? 1 : 0) : 1;
  group.flops += child.flops ?? 0; group.bytes += child.bytes ?? 0; group.made += child.made;
  group.changes += isGroup ? child.changes : child.change ? 1 : 0;
  const counted = [[group.devices, isGroup ? child.devices : [[child.device, 1]]],
    [group.operators, isGroup ? child.operators : [[child.op, 1]]]];
  for (const [into, from] of counted) {
    for (const [name, count] of from) into.set(name, (into.get(name) ?? 0) + count);
  }
}

function lastPart(name) { return name.slice(name.lastIndexOf("/") + 1); }

/** The scopes of a name. A node without a name is in the scope of the first user that has one. */
function scopePath(unit) {
  let name = unit.name;
  for (let i = 0, at = unit; !name && i < 8 && at.after.length; i++) { at = at.after[0]; name = at.name; }
  const path = name.split("/").slice(0, -1);
  return path.length > MOST_DEEP ? [...path.slice(0, MOST_DEEP - 1), path.slice(MOST_DEEP - 1).join("/")] : path;
}

/** How many scopes all nodes of a body share: a loop's body repeats the scopes of the loop. */
function commonScope(code) {
  let common = null;
  for (const unit of code.nodes) {
    const path = scopePath(unit);
    if (common === null) common = path;
    let length = 0;
    while (length < common.length && common[length] === path[length]) length++;
    common = common.slice(0, length);
  }
  return common && code.units.some(unit => unit.kind === "arg") ? common.length : 0;
}
