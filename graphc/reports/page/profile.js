"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const nodes = new Map(data.nodes.map((node) => [node.name, node]));

function time(seconds) {
  if (seconds >= 1) return seconds.toPrecision(3) + " s";
  if (seconds >= 1e-3) return (1e3 * seconds).toPrecision(3) + " ms";
  return (1e6 * seconds).toPrecision(3) + " us";
}

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/* The nodes of a line, below it: a click opens and closes them. */
for (const row of document.querySelectorAll("tr.timed")) {
  row.tabIndex = 0;
  const toggle = () => {
    const below = row.nextElementSibling;
    if (below && below.classList.contains("inside")) {
      below.remove();
      row.classList.remove("open");
      return;
    }
    row.classList.add("open");
    const made = document.createElement("tr");
    made.className = "inside";
    const inside = made.insertCell();
    inside.colSpan = row.cells.length;
    const line = data.lines[row.dataset.line];
    for (const name of line.nodes.slice(0, 60)) {
      const node = nodes.get(name);
      const item = document.createElement("div");
      const mark = document.createElement("i");
      mark.className = "phase " + node.phase;
      const spent = document.createElement("b");
      spent.textContent = time(node.seconds) + "  ";
      item.append(mark, spent, name + "  (" + node.op + ")");
      inside.append(item);
    }
    if (line.nodes.length > 60) {
      const more = document.createElement("div");
      more.textContent = "and " + (line.nodes.length - 60) + " more";
      inside.append(more);
    }
    if (line.callers.length) {
      const caller = document.createElement("div");
      caller.textContent = "its backward pass was asked for at " + line.callers.join(", ");
      inside.append(caller);
    }
    row.after(made);
  };
  row.addEventListener("click", toggle);
  row.addEventListener("keydown", (event) => {
    if (event.key === "Enter") toggle();
  });
}

/* Each file is shown from its slowest line on. */
for (const source of document.querySelectorAll(".source")) {
  let slowest = null;
  for (const row of source.querySelectorAll("tr.timed")) {
    if (slowest === null || Number(row.dataset.share) > Number(slowest.dataset.share)) slowest = row;
  }
  if (slowest !== null) source.scrollTop = slowest.offsetTop - source.clientHeight / 3;
}

/* The table of nodes: sorted by a click on a heading, filtered by the text. */
const body = document.querySelector("#nodes tbody");
const filter = document.getElementById("filter");
let order = "seconds";
let descending = true;

function show() {
  const wanted = filter.value.toLowerCase();
  const found = data.nodes.filter((node) =>
    (node.name + " " + node.op + " " + node.line + " " + node.phase).toLowerCase().includes(wanted)
  );
  const sign = descending ? -1 : 1;
  found.sort((a, b) => sign * (a[order] < b[order] ? -1 : a[order] > b[order] ? 1 : 0));
  body.replaceChildren();
  for (const node of found.slice(0, 500)) {
    const row = body.insertRow();
    cell(row, (100 * node.share).toFixed(1) + "%", "n");
    cell(row, time(node.seconds), "n");
    cell(row, node.count.toLocaleString("en"), "n");
    cell(row, node.rate, "n");
    const phase = cell(row, "");
    const mark = document.createElement("i");
    mark.className = "phase " + node.phase;
    phase.append(mark, node.phase);
    cell(row, node.name, "name");
    cell(row, node.op);
    cell(row, node.line);
  }
  document.getElementById("left").textContent =
    found.length > 500 ? "The first 500 of " + found.length + " nodes." : found.length + " nodes.";
}

for (const head of document.querySelectorAll("th[data-sort]")) {
  head.addEventListener("click", () => {
    descending = order === head.dataset.sort ? !descending : head.classList.contains("n");
    order = head.dataset.sort;
    show();
  });
}
filter.addEventListener("input", show);
show();
