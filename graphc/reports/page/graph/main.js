// Puts the parts together: tabs, passes, search, folding.
"use strict";

const byId = id => document.getElementById(id);
const MOST_BOXES = 700; // that "unfold a level" may lay out
const LARGE = 40; // nodes of a graph whose scopes begin folded

const colours = new Colours();
const app = { step: 0, code: null, tree: null, layouts: null, tab: "graph", item: null };
const view = new View(byId("canvas"), colours, { select, toggle });

// -- programs ------------------------------------------------------------------------------------

/** Shows the program after a step of the passes; what is unfolded stays so. */
function showStep(step, { fit = false } = {}) {
  const before = app.layouts, program = DATA.steps[step].program;
  const isOther = app.code !== programOf(program);
  app.step = step;
  if (isOther) {
    app.code = programOf(program);
    app.tree = app.code.tree ??= new Tree(app.code);
    app.layouts = new Layouts(app.tree);
    app.layouts.sized = byId("sized").checked;
    const small = app.tree.root.units <= LARGE;
    for (const group of app.tree.groups.values()) {
      const known = before && before.tree.groups.get(group.key);
      if (known ? before.open.has(known) : small && !before) app.layouts.open.add(group);
    }
    const key = app.item && app.item.key, chosen = key && (app.item instanceof Group ? app.tree.groups.get(key) : app.code.byKey.get(key));
    view.show(app.layouts);
    select(chosen ?? null);
    search();
  }
  byId("pass-slider").value = step;
  for (const row of byId("pass-list").children) row.classList.toggle("chosen", +row.dataset.step === step);
  byId("pass-list").querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
  if (fit) view.fit();
  if (app.tab !== "graph") showTab(app.tab);
}

function listPasses() {
  const only = byId("only-changed").checked;
  const shown = DATA.steps.map((step, i) => [step, i]).filter(([step, i]) => !only || i === 0 || step.program !== DATA.steps[i - 1].program || i === app.step);
  byId("pass-list").replaceChildren(...shown.map(([step, i]) => {
    const delta = step.after - step.before;
    const text = i === 0 ? plural(step.after, "node") : delta ? `${delta > 0 ? "+" : ""}${delta}` : step.changed ? `${step.changed} changed` : "";
    const title = [`${step.before} → ${step.after} nodes`, ...(step.notes ?? [])].join("\n");
    const row = element("li", { class: i === app.step ? "chosen" : "", title, onclick: () => showStep(i) },
      element("span", {}, step.name), element("span", { class: "soft" }, step.round > 1 ? `round ${step.round}` : ""), element("span", { class: "n" }, text));
    row.dataset.step = i;
    return row;
  }));
}

/** The step before or after among those that are listed. */
function neighbour(direction) {
  const listed = [...byId("pass-list").children].map(row => +row.dataset.step);
  const found = direction > 0 ? listed.find(step => step > app.step) : listed.reverse().find(step => step < app.step);
  if (found !== undefined) showStep(found);
}

// -- the graph -----------------------------------------------------------------------------------

function select(item) {
  app.item = item; view.selected = item;
  showDetails(byId("details"), item, app.code, app.tree, reveal);
  view.request();
}

function toggle(group) {
  const isLoop = group.parent === null;
  if (isLoop) return;
  const before = app.layouts.rectangle(group);
  app.layouts.toggle(group);
  const after = app.layouts.rectangle(group);
  if (before && after) { view.x += after[0] - before[0]; view.y += after[1] - before[1]; } // stays under the mouse
  view.request();
}

/** Unfolds what is around a unit, selects it and moves it into the middle. */
function reveal(unit) {
  showTab("graph");
  for (const group of app.tree.around(unit)) {
    if (group.owner !== unit) app.layouts.toggle(group, true);
  }
  select(unit.bodies.length ? app.tree.home.get(unit) : unit);
  view.centre(unit);
}

/** Reveals the node or variable of a name in the program that is shown, or else in the last one that has it. */
function revealName(name) {
  const find = () => app.code.byKey.get(name) ?? [...app.code.all()].find(unit => unit.name === name);
  let unit = find();
  if (!unit) {
    const step = DATA.steps.findLastIndex(({ program }) => hasName(DATA.programs[program], name));
    if (step >= 0) { showStep(step); listPasses(); unit = find(); }
  }
  if (unit) reveal(unit); else { showTab("graph"); say(`${name} is in no program of this report`); }
}

function unfoldLevel() {
  const folded = app.layouts.folded().sort((a, b) => a.children.length - b.children.length);
  let boxes = app.layouts.count(), left = 0;
  for (const group of folded) {
    if (boxes + group.children.length > MOST_BOXES) { left += 1; continue; }
    boxes += group.children.length; app.layouts.toggle(group, true);
  }
  if (left) say(`${plural(left, "scope")} stay folded: more than ${MOST_BOXES} boxes are not laid out at once. Unfold them one by one.`);
  view.fit();
}

let saying = 0;
function say(text) {
  byId("message").textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => { byId("message").textContent = ""; }, 6000);
}

// -- search --------------------------------------------------------------------------------------

function search() {
  const text = byId("search").value.trim(), results = byId("results");
  if (!text) { results.hidden = true; byId("found").textContent = ""; results.replaceChildren(); return; }
  const found = [...app.code.all()].filter(matcher(text));
  byId("found").textContent = `${found.length} found`;
  results.replaceChildren(...found.slice(0, 60).map(unit => element("li", {}, element("button", { class: "link", onclick: () => { results.hidden = true; reveal(unit); } },
    element("span", { class: "mono" }, unit.name || "(no name)"), ` ${unit.op} `, element("span", { class: "soft" }, lineText(unit.line))))));
  results.hidden = !found.length;
}

// -- tabs ----------------------------------------------------------------------------------------

const TABS = {
  graph: ["Graph", () => {}],
  nodes: ["Nodes", section => nodesTab(section, app.code, reveal)],
  memory: ["Memory", section => memoryTab(section, revealName)],
  devices: ["Devices", section => devicesTab(section, colours, revealName)],
  passes: ["Passes", section => passesTab(section, app.step, step => { showTab("graph"); showStep(step); listPasses(); })],
  placement: ["Placement", section => placementTab(section, revealName)],
};

function showTab(name) {
  app.tab = name;
  for (const key of Object.keys(TABS)) {
    byId(`tab-${key}`).hidden = key !== name;
    byId(`show-${key}`).classList.toggle("chosen", key === name);
  }
  TABS[name][1](byId(`tab-${name}`));
}

function listen() {
  const on = (id, event, action) => byId(id).addEventListener(event, action);
  on("pass-slider", "input", event => { showStep(+event.target.value); listPasses(); });
  on("pass-before", "click", () => neighbour(-1));
  on("pass-after", "click", () => neighbour(1));
  on("only-changed", "change", listPasses);
  on("search", "input", search);
  on("search", "keydown", event => {
    if (event.key === "Enter") byId("results").querySelector("button")?.click();
    if (event.key === "Escape") { event.target.value = ""; search(); event.target.blur(); }
  });
  on("search", "focus", search);
  on("colour", "change", event => { colours.by = event.target.value; legend(); view.request(); });
  on("sized", "change", event => { app.layouts.sized = event.target.checked; app.layouts.placed.clear(); view.request(); });
  on("fold-all", "click", () => { app.layouts.foldAll(); view.fit(); });
  on("unfold", "click", unfoldLevel);
  on("fit", "click", () => view.fit());
  on("canvas", "pointerdown", () => { byId("results").hidden = true; });
  new ResizeObserver(() => view.resize()).observe(byId("canvas"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours.refresh(); legend(); view.request(); });
  document.addEventListener("keydown", key);
}

function key(event) {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    "/": () => { showTab("graph"); byId("search").focus(); }, ArrowLeft: () => neighbour(-1), ArrowRight: () => neighbour(1),
    "+": () => view.zoom(1.25), "-": () => view.zoom(0.8), f: () => view.fit(), Escape: () => select(null),
    u: () => { const group = app.item instanceof Group ? app.item : app.tree.home.get(app.item); if (group) toggle(group); },
  };
  const action = actions[event.key];
  if (action) { event.preventDefault(); action(); }
}

function legend() { byId("legend").replaceChildren(...colours.legend()); }

function begin() {
  byId("title").textContent = DATA.title;
  byId("note").textContent = [DATA.note, `${plural(DATA.steps[0].after, "node")} before all passes, ${DATA.steps.at(-1).after.toLocaleString("en")} after`].filter(Boolean).join(" · ");
  byId("tabs").append(...Object.entries(TABS).map(([name, [title]]) => element("button", { id: `show-${name}`, onclick: () => showTab(name) }, title)));
  byId("colour").append(...Object.entries(COLOURINGS).map(([name, title]) => element("option", { value: name }, title)));
  byId("pass-slider").max = DATA.steps.length - 1;
  listen();
  legend();
  showTab("graph");
  listPasses();
  showStep(0);
  view.resize();
  view.fit();
}

begin();
