// The tables: nodes, passes, placement.
"use strict";

const ROWS = 300; // of a long table that are shown at first

/** A table that sorts by a click on a column. Columns: [title, value, text, class]. */
function sortedTable(rows, columns, { order = 0, down = null, open = null, marked = null } = {}) {
  const body = element("tbody"), head = element("tr");
  const state = { order, down: down ?? typeof rows[0]?.[columns[order]?.[1]] === "number", most: ROWS, rows };
  const more = element("button", { onclick: () => { state.most += 1000; fill(); } });
  const value = (row, column) => (typeof column[1] === "function" ? column[1](row) : row[column[1]]);
  function fill() {
    const column = columns[state.order];
    const sorted = column ? [...state.rows].sort((a, b) => compare(value(a, column), value(b, column)) * (state.down ? -1 : 1)) : state.rows;
    body.replaceChildren(...sorted.slice(0, state.most).map(row => {
      const cells = columns.map(c => element("td", { class: c[3] ?? "" }, c[2] ? c[2](row) : String(value(row, c) ?? "")));
      const made = element("tr", { class: marked && marked(row) ? "marked" : "" }, ...cells);
      if (open) { made.classList.add("opens"); made.addEventListener("click", () => open(row)); }
      return made;
    }));
    more.hidden = sorted.length <= state.most;
    more.textContent = `${(sorted.length - state.most).toLocaleString("en")} more`;
    for (const [i, cell] of [...head.children].entries()) cell.dataset.sorted = i === state.order ? (state.down ? "down" : "up") : "";
  }
  for (const [i, column] of columns.entries()) {
    head.append(element("th", { class: column[3] ?? "", onclick: () => {
      if (state.order === i) state.down = !state.down; else { state.order = i; state.down = typeof value(state.rows[0] ?? {}, column) === "number"; }
      fill();
    } }, column[0]));
  }
  fill();
  const made = element("div", { class: "scrolls" }, element("table", { class: "rows" }, element("thead", {}, head), body), more);
  return { element: made, show(found) { state.rows = found; state.most = ROWS; fill(); } };
}

function compare(a, b) {
  if (typeof a === "number" || typeof b === "number") return (a ?? -1) - (b ?? -1);
  return String(a).localeCompare(String(b));
}

/** A bar behind a figure. */
function barred(value, most, text) {
  return element("span", { class: "bar", style: `--part:${most ? Math.min(1, (value ?? 0) / most) : 0}` }, text);
}

function nodesTab(section, code, go) {
  const units = [...code.all()].filter(unit => unit.kind === "node");
  const most = key => Math.max(0, ...units.map(unit => unit[key] ?? 0));
  const [flops, bytes, made] = [most("flops"), most("bytes"), most("made")];
  const columns = [
    ["node", "name", unit => unit.name || "(no name)", "mono"], ["operator", "op"],
    ["operations", "flops", unit => barred(unit.flops, flops, amount(unit.flops, "")), "n"],
    ["bytes moved", "bytes", unit => barred(unit.bytes, bytes, amount(unit.bytes, "B")), "n"],
    ["results", "made", unit => barred(unit.made, made, amount(unit.made, "B")), "n"],
    ["type", "type", unit => shortened(unit.type, 80), "mono"], ["device", unit => unit.device || placeOf(unit), null, "whole"], ["line", unit => lineText(unit.line), null, "whole"],
  ];
  const table = sortedTable(units, columns, { order: 2, open: go });
  const count = element("span", { class: "soft" });
  const filter = element("input", { type: "search", placeholder: "name, operator, type or line", id: "node-filter", oninput: () => {
    const found = units.filter(matcher(filter.value));
    table.show(found); count.textContent = `${found.length} of ${plural(units.length, "node")}`;
  } });
  count.textContent = plural(units.length, "node");
  section.replaceChildren(element("div", { class: "bar-of-tools" }, filter, count,
    element("span", { class: "soft" }, "Estimated from shapes before fusion. A click shows the node in the graph.")), table.element);
}

/** Whether a unit has all words in its name, operator, type, device or line. */
function matcher(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return unit => words.every(word => unit.searched.includes(word));
}

function passesTab(section, current, go) {
  const steps = DATA.steps.map((step, i) => ({ ...step, i, delta: step.after - step.before }));
  const columns = [
    ["", "i", step => String(step.i), "n soft"], ["pass", "name"], ["round", "round", null, "n"], ["before", "before", null, "n"], ["after", "after", null, "n"],
    ["nodes", "delta", step => (step.delta ? (step.delta > 0 ? "+" : "") + step.delta : ""), "n"], ["changes", "changed", step => step.changed || "", "n"],
    ["ms", "milliseconds", step => (step.milliseconds ?? 0).toFixed(2), "n"], ["check ms", "check_milliseconds", step => (step.check_milliseconds ?? 0).toFixed(2), "n"],
    ["operations", "flops", step => amount(step.flops, "FLOP"), "n"], ["bytes moved", "bytes", step => amount(step.bytes, "B"), "n"], ["memory", "memory", step => amount(step.memory, "B"), "n"],
    ["notes", step => (step.notes ?? []).join("; ")],
  ];
  const time = steps.reduce((sum, step) => sum + (step.milliseconds ?? 0) + (step.check_milliseconds ?? 0), 0);
  const table = sortedTable(steps, columns, { order: 0, down: false, open: step => go(step.i), marked: step => step.i === current });
  section.replaceChildren(element("p", { class: "soft" }, `${plural(steps.length, "step")}, ${time.toFixed(1)} ms. A click shows the program after the pass.`), table.element);
}

function placementTab(section, go) {
  const rows = DATA.placement.rows.map(([name, op, devices]) => ({ name, op, devices: devices.map(d => DATA.devices[d]).join(", ") }));
  const notes = DATA.placement.notes.map(note => element("p", { class: "note" }, note));
  if (!rows.length) { section.replaceChildren(element("p", { class: "soft" }, "Nothing was placed: the report has no compiled program."), ...notes); return; }
  const counts = new Map();
  for (const row of rows) counts.set(row.devices, (counts.get(row.devices) ?? 0) + 1);
  const chips = [...counts].map(([name, count]) => element("span", { class: "chip" }, `${name}: ${count}`));
  const table = sortedTable(rows, [["node or variable", "name", null, "mono"], ["operator", "op"], ["devices", "devices"]], { order: -1, open: row => go(row.name) });
  section.replaceChildren(element("p", {}, ...chips), ...notes, table.element);
}
