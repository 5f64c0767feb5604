// Charts: the memory over the step, and what each device runs when.
"use strict";

const WIDE = 1000, TALL = 280;

function memoryTab(section, go) {
  const memory = DATA.memory;
  if (!memory || !memory.live.length) {
    section.replaceChildren(element("p", { class: "soft" }, "The memory over a step is known for a compiled program: give fetches.")); return;
  }
  const numbers = expanded(memory.nodes), live = memory.live, peak = live.indexOf(Math.max(...live));
  const holders = element("div", { id: "holders" });
  const cursor = svg("line", { class: "cursor", y1: 0, y2: TALL });
  let shown = -1;
  function show(i) {
    if (i === shown) return;
    shown = i;
    const x = xOf(i + 0.5, live.length);
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    holders.replaceChildren(...holdersAt(i, numbers, go));
  }
  const chart = memoryChart(live, peak);
  chart.append(cursor);
  const at = event => {
    const box = chart.getBoundingClientRect();
    return Math.max(0, Math.min(live.length - 1, Math.floor((event.clientX - box.left) / box.width * live.length)));
  };
  let held = false;
  chart.addEventListener("pointermove", event => { if (!held) show(at(event)); });
  chart.addEventListener("click", event => { held = !held; show(at(event)); });
  section.replaceChildren(
    element("p", {}, `At most ${amount(live[peak], "B")} at once, at node ${peak + 1} of ${live.length}; besides `,
      `${amount(memory.state, "B")} of variables and ${amount(memory.feeds, "B")} of feeds. `,
      element("span", { class: "soft" }, `Estimated from shapes for the lowered program, with what fusion saves${DATA.lanes && !DATA.lanes.same ? ", for all devices together" : ""}. Move over the chart; a click holds it.`)),
    element("div", { class: "chart" }, chart), holders);
  show(peak);
}

function xOf(i, count) { return WIDE * i / count; }

function memoryChart(live, peak) {
  const most = Math.max(...live, 1), y = value => TALL - (TALL - 20) * value / most;
  let path = `M0 ${TALL}`;
  // At most a few points for each pixel: the highest of each part.
  const step = Math.max(1, Math.floor(live.length / 2000));
  for (let i = 0; i < live.length; i += step) {
    const value = Math.max(...live.slice(i, i + step));
    path += `L${xOf(i, live.length).toFixed(2)} ${y(value).toFixed(1)}L${xOf(Math.min(live.length, i + step), live.length).toFixed(2)} ${y(value).toFixed(1)}`;
  }
  const lines = [0.25, 0.5, 0.75, 1].flatMap(part => [
    svg("line", { class: "grid", x1: 0, x2: WIDE, y1: y(part * most), y2: y(part * most) }),
    svg("text", { class: "axis", x: 4, y: y(part * most) - 3 }, amount(part * most, "B"))]);
  return svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, id: "memory-chart" }, svg("path", { class: "area", d: `${path}L${WIDE} ${TALL}Z` }), ...lines,
    svg("circle", { class: "peak", cx: xOf(peak + 0.5, live.length), cy: y(live[peak]), r: 4 }));
}

/** The values in memory while a node runs, the largest first. */
function holdersAt(i, numbers, go) {
  const memory = DATA.memory, row = DATA.nodes[numbers[i]];
  const producers = new Map();
  for (const number of numbers) for (const tensor of DATA.nodes[number].u) producers.set(tensor, number);
  const held = memory.values.filter(([start, end]) => start <= i && i <= end).sort((a, b) => b[2] - a[2]);
  const most = held.length ? held[0][2] : 0;
  const rows = held.slice(0, 40).map(([start, end, bytes, tensor]) => {
    const made = DATA.nodes[producers.get(tensor)];
    return element("tr", { class: "opens", onclick: () => go(made.n) }, element("td", { class: "n" }, barred(bytes, most, amount(bytes, "B"))), element("td", { class: "mono" }, made.n || DATA.operators[made.o]),
      element("td", {}, DATA.operators[made.o]), element("td", { class: "mono" }, shortened(typeOf(tensor), 80)), element("td", { class: "n" }, `${start + 1} – ${lastNode(end)}`), element("td", {}, lineText(made.s ?? -1)));
  });
  const inside = memory.inside[i] ? `, of which ${amount(memory.inside[i], "B")} inside its bodies` : "";
  return [
    element("h3", {}, `${amount(memory.live[i], "B")} while node ${i + 1} runs: `, element("button", { class: "link mono", onclick: () => go(row.n) }, row.n || DATA.operators[row.o]), ` (${DATA.operators[row.o]})${inside}`),
    element("p", { class: "soft" }, held.length > 40 ? `The 40 largest of ${held.length} values` : plural(held.length, "value")),
    element("table", { class: "rows" }, element("thead", {}, element("tr", {}, ...["bytes", "node", "operator", "type", "lives", "line"].map((name, k) => element("th", { class: k === 0 || k === 4 ? "n" : "" }, name)))), element("tbody", {}, ...rows)),
  ];
}

// -- devices -----------------------------------------------------------------------------------

function devicesTab(section, colours, go) {
  const lanes = DATA.lanes;
  if (!lanes) { section.replaceChildren(element("p", { class: "soft" }, "The program runs on one device.")); return; }
  if (lanes.same) {
    section.replaceChildren(element("p", {}, `${lanes.same.length} devices run the same program, each on its part:`),
      element("p", {}, ...lanes.same.map(d => element("span", { class: "chip", style: `border-color:${colours.device(DATA.devices[d])}` }, DATA.devices[d]))));
    return;
  }
  const detail = element("div", { id: "cluster" }, element("p", { class: "soft" }, "Click a block to see its nodes."));
  const order = [...new Set(lanes.clusters.map(cluster => cluster.device))].sort((a, b) => a - b);
  const rows = order.map(device => lane(device, lanes, colours, cluster => detail.replaceChildren(...clusterDetails(cluster, go))));
  const sends = lanes.sends.map(([name, type, bytes, from, to]) => ({ name, type, bytes, from: DATA.devices[from], to: DATA.devices[to] }));
  const table = sortedTable(sends, [["value sent", "name", null, "mono"], ["type", "type", null, "mono"], ["bytes", "bytes", s => amount(s.bytes, "B"), "n"], ["from", "from"], ["to", "to"]],
    { order: 2, open: send => go(send.name.replace(/:\d+$/, "")) });
  section.replaceChildren(
    element("p", {}, `${plural(lanes.clusters.length, "cluster")} on ${plural(order.length, "device")}, ${plural(sends.length, "transfer")}; devices wait ${percent(lanes.idle)} of the step. `,
      element("span", { class: "soft" }, "Estimated from costs; Executable.timeline measures it.")),
    element("div", { class: "lanes" }, ...rows), detail, element("h3", {}, "Transfers"), table.element);
}

function lane(device, lanes, colours, show) {
  const track = element("div", { class: "track" });
  for (const cluster of lanes.clusters.filter(found => found.device === device)) {
    const turn = cluster.turn === null ? "" : `micro-batch ${cluster.turn}: `;
    track.append(element("button", {
      class: "block", title: `cluster ${cluster.cluster}, ${turn}${plural(cluster.nodes.length, "node")}, ${amount(cluster.flops, "FLOP")}`,
      style: `left:${100 * cluster.start}%;width:max(3px, ${100 * (cluster.end - cluster.start)}%);--lane:${colours.device(DATA.devices[device])};--shade:${cluster.turn === null ? 0 : 12 * (cluster.turn % 4)}%`,
      onclick: () => show(cluster),
    }, cluster.turn === null ? String(cluster.cluster) : `µ${cluster.turn}`));
  }
  return element("div", { class: "lane" }, element("div", { class: "name mono" }, DATA.devices[device]), track);
}

function clusterDetails(cluster, go) {
  const turn = cluster.turn === null ? "" : `, micro-batch ${cluster.turn}`;
  return [element("h3", {}, `Cluster ${cluster.cluster} on ${DATA.devices[cluster.device]}${turn}`),
    element("p", {}, `${plural(cluster.nodes.length, "node")}, ${amount(cluster.flops, "FLOP")}, ${amount(cluster.bytes, "B")} moved, ${amount(cluster.sent, "B")} sent`),
    element("p", { class: "names" }, ...cluster.nodes.slice(0, 200).map(name => element("button", { class: "link mono", onclick: () => go(name) }, name)))];
}
