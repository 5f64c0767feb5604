// What is known of the selected node or group, and the user's line that made it.
"use strict";

/** The panel of an item. `go(unit)` selects another one. */
function showDetails(panel, item, code, tree, go) {
  panel.replaceChildren();
  if (!item) {
    panel.append(element("p", { class: "soft" }, "Click a box to see what it is. A double click, or a click on + or –, folds and unfolds a scope."),
      keys(), ...gone(code));
    return;
  }
  panel.append(...(item instanceof Group && !item.owner ? groupDetails(item, go) : unitDetails(item instanceof Group ? item.owner : item, tree, go)));
}

function keys() {
  const rows = [["/", "search"], ["← →", "the pass before or after"], ["+ –", "zoom"], ["f", "fit"], ["u", "unfold or fold the selection"], ["Esc", "select nothing"]];
  return element("table", { class: "facts" }, ...rows.map(([key, what]) => element("tr", {}, element("td", {}, element("kbd", {}, key)), element("td", {}, what))));
}

function gone(code) {
  if (!code.removed || !code.removed.length) return [];
  const rows = code.removed.slice(0, 100).map(row => element("li", {}, element("span", { class: "mono" }, row.n || "(no name)"), ` ${DATA.operators[row.o]}`));
  const more = code.removed.length > 100 ? [element("p", { class: "soft" }, `and ${code.removed.length - 100} more`)] : [];
  return [element("h3", {}, `${plural(code.removed.length, "node")} that the pass removed`), element("ul", { class: "list" }, ...rows), ...more];
}

function facts(rows) {
  return element("table", { class: "facts" }, ...rows.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .map(([name, value]) => element("tr", {}, element("td", {}, name), element("td", {}, value))));
}

function groupDetails(group, go) {
  const operators = [...group.operators].sort((a, b) => b[1] - a[1]);
  const devices = [...group.devices].filter(([name]) => name).map(([name, count]) => `${name} (${count})`).join(", ");
  const units = [...unitsOf(group)].filter(unit => unit.flops).sort((a, b) => b.flops - a.flops).slice(0, 12);
  return [
    element("h2", { class: "mono" }, group.key.replace(/\/$/, "") || group.title),
    facts([["nodes", group.units.toLocaleString("en")], ["operations", amount(group.flops, "FLOP")], ["bytes moved", amount(group.bytes, "B")],
      ["results", amount(group.made, "B")], ["devices", devices], ["changed by the pass", group.changes || ""]]),
    element("h3", {}, "Operators"),
    facts(operators.slice(0, 20).map(([name, count]) => [name, count])),
    ...(units.length ? [element("h3", {}, "Costliest"), list(units, go, unit => amount(unit.flops, "FLOP"))] : []),
  ];
}

function* unitsOf(group) {
  if (group.owner) yield group.owner;
  for (const child of group.children) if (child instanceof Group) yield* unitsOf(child); else yield child;
}

function list(units, go, text) {
  const shown = units.slice(0, 30).map(unit => element("li", {},
    element("button", { class: "link mono", onclick: () => go(unit) }, unit.name || unit.op), ` ${text(unit)}`));
  if (units.length > 30) shown.push(element("li", { class: "soft" }, `and ${units.length - 30} more`));
  return element("ul", { class: "list" }, ...shown);
}

function unitDetails(unit, tree, go) {
  const results = unit.outputs.map(tensor => `${typeOf(tensor)} (${amount(bytesOf(tensor), "B")})`);
  const total = tree.root.flops || 1, peak = holding(unit);
  return [
    element("h2", { class: "mono" }, unit.name || `(a ${unit.op} without a name)`),
    facts([["operator", unit.op], ["results", results.length ? element("span", { class: "mono" }, results.join(", ")) : ""],
      ["device", unit.device || placeOf(unit)],
      ["operations", unit.flops === null ? "" : `${amount(unit.flops, "FLOP")} (${percent(unit.flops / total)})`],
      ["bytes moved", unit.bytes === null ? "" : amount(unit.bytes, "B")],
      ["memory", peak], ["new value of", unit.writes.join(", ")], ["pass", unit.change ? `${unit.change} by this pass` : ""]]),
    ...(unit.row && unit.row.a ? [element("h3", {}, "Attributes"), facts(unit.row.a.map(([name, text]) => [name, element("span", { class: "mono" }, text)]))] : []),
    ...(unit.line >= 0 ? source(unit.line) : []),
    ...turns(unit),
    ...(unit.before.length ? [element("h3", {}, "Uses"), list(unit.before, go, other => other.type)] : []),
    ...(unit.after.length ? [element("h3", {}, `Used by ${unit.after.length}`), list(unit.after, go, other => other.type)] : []),
    ...(unit.row && unit.row.c ? [element("h3", {}, "Runs after"), element("p", { class: "mono" }, unit.row.c.join(", "))] : []),
  ];
}

/** The devices of the placement log. */
function placeOf(unit) { return placesOf(unit.name).join(", "); }

/** How long the results stay in memory in the lowered program. */
function holding(unit) {
  if (!DATA.memory) return "";
  const found = DATA.memory.values.filter(([, , , tensor]) => unit.outputs.includes(tensor));
  if (found.length > 3) return `${plural(found.length, "value")}, ${amount(found.reduce((sum, value) => sum + value[2], 0), "B")}, see Memory`;
  return found.map(([start, end, bytes]) => `${amount(bytes, "B")} from node ${start + 1} to ${lastNode(end)} of ${DATA.memory.live.length}`).join("; ");
}

/** A line of the user's program with the code around it. */
function source(line) {
  const [file, number] = DATA.lines[line], { name, code } = DATA.files[file];
  const numbers = [-4, -3, -2, -1, 0, 1, 2, 3, 4].map(k => number + k).filter(n => code[n] !== undefined);
  const indents = numbers.filter(n => code[n].trim()).map(n => code[n].search(/\S/));
  const indent = Math.min(...indents, 200); // of all lines: the panel is narrow
  const rows = numbers.map(n => element("div", { class: n === number ? "code here" : "code" },
    element("span", { class: "number" }, String(n)), code[n].slice(indent) || " "));
  if (!rows.length) rows.push(element("p", { class: "soft" }, "The file could not be read when the report was written."));
  return [element("h3", { title: name }, `Made at ${baseName(name)}:${number}`), element("div", { class: "source" }, ...rows)];
}

/** The nodes that a node of a rolled block stands for: one for each iteration. */
function turns(unit) {
  if (!unit.row || !unit.row.t) return [];
  const rows = unit.row.t.map(([name, line]) => element("li", {}, element("span", { class: "mono" }, name), ` ${lineText(line)}`));
  return [element("h3", {}, "Stands for, in each iteration of its loop"), element("ul", { class: "list" }, ...rows)];
}
