// The picture of the graph on a canvas: zoom, pan, clicks. It draws only what is in the window.
"use strict";

const FONT = "12px system-ui, sans-serif", SMALL = "10px system-ui, sans-serif";

class View {
  /** `events` has `select(item)` and `opened(group)`. */
  constructor(canvas, colours, events) {
    this.canvas = canvas; this.colours = colours; this.events = events;
    this.context = canvas.getContext("2d");
    this.x = 0; this.y = 0; this.scale = 1; // screen = (picture - [x, y]) * scale
    this.selected = null; this.hovered = null; this.layouts = null; this.drawn = 0;
    this.waiting = false;
    this.texts = new Map(); // as shown, so that each is measured once
    this._listen();
  }

  show(layouts) { this.layouts = layouts; this.selected = null; this.hovered = null; this.request(); }

  request() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  // -- the window --------------------------------------------------------------------------

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth; this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio); this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
    this.draw(); // at once: a new size clears the canvas
  }

  fit(item = this.layouts.tree.root, most = 1.2) {
    const [x, y, width, height] = this.layouts.rectangle(item);
    const scale = Math.min(this.width / (width + 40), this.height / (height + 40));
    this.scale = Math.max(0.02, Math.min(most, scale));
    // A tall picture that would be too small to read begins at its top.
    if (item === this.layouts.tree.root && this.scale < 0.35) this.scale = Math.min(0.6, Math.max(this.scale, this.width / (width + 40)));
    this.x = x + width / 2 - this.width / 2 / this.scale;
    this.y = height * this.scale > this.height ? y - 20 / this.scale : y + height / 2 - this.height / 2 / this.scale;
    this.request();
  }

  /** Moves an item into the middle of the window. */
  centre(item) {
    const found = this.layouts.rectangle(this.layouts.visible(item));
    if (!found) return;
    this.scale = Math.max(this.scale, 0.7);
    this.x = found[0] + found[2] / 2 - this.width / 2 / this.scale;
    this.y = found[1] + Math.min(found[3], this.height / this.scale) / 2 - this.height / 2 / this.scale;
    this.request();
  }

  zoom(factor, sx = this.width / 2, sy = this.height / 2) {
    const scale = Math.max(0.02, Math.min(4, this.scale * factor));
    this.x += sx / this.scale - sx / scale; this.y += sy / this.scale - sy / scale;
    this.scale = scale;
    this.request();
  }

  // -- the mouse ---------------------------------------------------------------------------

  _listen() {
    const canvas = this.canvas;
    let from = null, moved = false;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const step = event.deltaMode === 1 ? 30 * event.deltaY : event.deltaY;
      this.zoom(Math.exp(-Math.max(-240, Math.min(240, step)) * 0.002), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", event => {
      from = [event.clientX, event.clientY]; moved = false;
      try { canvas.setPointerCapture(event.pointerId); } catch { /* the pointer is gone */ }
    });
    canvas.addEventListener("pointermove", event => {
      if (!from) { this._hover(event.offsetX, event.offsetY); return; }
      const dx = event.clientX - from[0], dy = event.clientY - from[1];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      moved = true; from = [event.clientX, event.clientY];
      this.x -= dx / this.scale; this.y -= dy / this.scale;
      this.request();
    });
    canvas.addEventListener("pointerup", event => {
      if (from && !moved) this._click(event.offsetX, event.offsetY);
      from = null;
    });
    canvas.addEventListener("pointercancel", () => { from = null; });
    canvas.addEventListener("dblclick", event => {
      const item = this.at(event.offsetX, event.offsetY);
      if (item instanceof Group) this.events.toggle(item);
    });
  }

  _hover(sx, sy) {
    const item = this.at(sx, sy);
    if (item !== this.hovered) { this.hovered = item; this.canvas.style.cursor = item ? "pointer" : "grab"; this.request(); }
  }

  /** A click on the sign of a group, at its left end, opens or folds it. */
  _click(sx, sy) {
    const item = this.at(sx, sy);
    if (item instanceof Group) {
      const [x, y] = this.layouts.rectangle(item);
      const px = sx / this.scale + this.x - x, py = sy / this.scale + this.y - y;
      if (px < 24 && py < Math.max(HEAD + 4, this.layouts.isOpen(item) ? 0 : BOX.height)) { this.events.toggle(item); return; }
    }
    this.events.select(item);
  }

  /** The innermost item at a point of the window; null if there is none. */
  at(sx, sy) {
    const px = sx / this.scale + this.x, py = sy / this.scale + this.y;
    let group = this.layouts.tree.root, x = 0, y = 0, found = null;
    for (let inside = true; inside;) {
      inside = false;
      for (const [child, [cx, cy, width, height]] of this.layouts.place(group).places) {
        if (px < x + cx || py < y + cy || px > x + cx + width || py > y + cy + height) continue;
        found = child;
        if (this.layouts.isOpen(child)) { group = child; x += cx; y += cy; inside = true; }
        break;
      }
    }
    return found;
  }

  // -- drawing -----------------------------------------------------------------------------

  draw() {
    if (!this.layouts || !this.width) return;
    const context = this.context, start = performance.now();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.colours.back;
    context.fillRect(0, 0, this.width, this.height);
    context.scale(this.scale, this.scale);
    context.translate(-this.x, -this.y);
    this.window = [this.x, this.y, this.x + this.width / this.scale, this.y + this.height / this.scale];
    this.boxes = 0;
    const root = this.layouts.tree.root;
    this.total = { flops: root.flops, bytes: root.bytes, made: root.made };
    this._group(root, 0, 0);
    if (this.selected) this._connections(this.selected);
    this.drawn = performance.now() - start;
  }

  _inWindow(x, y, width, height) {
    const [left, top, right, bottom] = this.window;
    return x < right && y < bottom && x + width > left && y + height > top;
  }

  _group(group, x, y) {
    const { places, lines, many } = this.layouts.place(group);
    const context = this.context;
    if (this.scale > 0.06) {
      context.strokeStyle = context.fillStyle = this.colours.edge; context.lineWidth = 1;
      for (const { points } of lines) this._line(points, x, y);
    }
    for (const [child, [cx, cy, width, height]] of places) {
      if (!this._inWindow(x + cx, y + cy, width, height)) continue;
      this.boxes += 1;
      if (!this.layouts.isOpen(child)) { this._box(child, x + cx, y + cy, width, height, many.get(child)); continue; }
      this._frame(child, x + cx, y + cy, width, height);
      if (Math.max(width, height) * this.scale > 12) this._group(child, x + cx, y + cy);
    }
  }

  _line(points, x, y) {
    const xs = points.map(point => point[0]), ys = points.map(point => point[1]);
    const left = x + Math.min(...xs), top = y + Math.min(...ys);
    if (!this._inWindow(left - 1, top - 1, Math.max(...xs) - Math.min(...xs) + 2, Math.max(...ys) - Math.min(...ys) + 2)) return;
    const context = this.context, last = points.length - 1;
    context.beginPath();
    context.moveTo(x + points[0][0], y + points[0][1]);
    for (let i = 1; i < last; i++) {
      const end = i === last - 1 ? points[last] : [(points[i][0] + points[i + 1][0]) / 2, (points[i][1] + points[i + 1][1]) / 2];
      context.quadraticCurveTo(x + points[i][0], y + points[i][1], x + end[0], y + end[1]);
    }
    if (last < 2) context.lineTo(x + points[last][0], y + points[last][1]);
    context.stroke();
    if (this.scale > 0.3) this._arrow(points[last - 1], points[last], x, y);
  }

  _arrow([ax, ay], [bx, by], x, y) {
    const angle = Math.atan2(by - ay, bx - ax), context = this.context;
    context.beginPath();
    context.moveTo(x + bx, y + by);
    for (const turn of [0.4, -0.4]) context.lineTo(x + bx - 7 * Math.cos(angle + turn), y + by - 7 * Math.sin(angle + turn));
    context.fill();
  }

  /** An open group. */
  _frame(group, x, y, width, height) {
    const context = this.context;
    context.fillStyle = this.colours.group; context.globalAlpha = 0.6;
    context.beginPath(); context.roundRect(x, y, width, height, 8); context.fill();
    context.globalAlpha = 1;
    this._outline(group, group.owner ? this.colours.kinds.get("control") : this.colours.line);
    if (this.scale < 0.2) return;
    context.fillStyle = this.colours.ink; context.font = FONT; context.textBaseline = "middle"; context.textAlign = "left";
    this._text(`–  ${titleOf(group)}`, x + 9, y + 13, width - 16);
  }

  _outline(item, colour) {
    const context = this.context, chosen = item === this.selected;
    context.strokeStyle = chosen || item === this.hovered ? this.colours.accent : colour;
    context.lineWidth = chosen ? 2.5 : 1; context.stroke();
  }

  _box(item, x, y, width, height, users) {
    const context = this.context, isGroup = item instanceof Group;
    const [mark, heat, devices] = this.colours.mark(item, this.total);
    const radius = isGroup ? 8 : ["node"].includes(item.kind) ? 3 : height / 2;
    if (isGroup && this.scale > 0.15) { // looks like a stack
      context.fillStyle = this.colours.group; context.beginPath();
      context.roundRect(x + 3, y + 3, width, height, radius); context.fill(); context.strokeStyle = this.colours.line; context.lineWidth = 1; context.stroke();
    }
    context.fillStyle = isGroup ? this.colours.group : this.colours.box;
    context.beginPath(); context.roundRect(x, y, width, height, radius); context.fill();
    if (heat) { context.globalAlpha = Math.min(0.85, 0.08 + 0.77 * heat); context.fillStyle = mark; context.fill(); context.globalAlpha = 1; }
    if (heat === null || this.colours.by === "change") this._stripe(mark, devices, x, y, width, height, radius);
    context.beginPath(); context.roundRect(x, y, width, height, radius);
    this._outline(item, heat === null && !isGroup ? mark : this.colours.line);
    if (this.scale < 0.28) return;
    context.textBaseline = "middle"; context.textAlign = "left";
    context.fillStyle = this.colours.ink; context.font = FONT;
    const left = x + (isGroup ? 8 : 10), room = width - 14;
    this._text(isGroup ? `+  ${titleOf(item)}` : lastPart(item.name) || item.op, left, y + height / 2 - 6, room);
    context.fillStyle = this.colours.soft; context.font = SMALL;
    const below = isGroup ? `${item.owner ? `${item.owner.op}, ` : ""}${item.units.toLocaleString("en")} nodes${item.flops ? `, ${amount(item.flops, "FLOP")}` : ""}` : item.type || item.op;
    this._text(users ? `${below}  → ${users}` : below, left + (isGroup ? 12 : 0), y + height / 2 + 8, room - (isGroup ? 12 : 0));
  }

  /** The colour at the left end of a box; several devices share it. */
  _stripe(mark, devices, x, y, width, height, radius) {
    const context = this.context, colours = devices && devices.length > 1 ? devices.map(name => this.colours.device(name)) : [mark];
    context.save(); context.clip();
    for (const [i, colour] of colours.entries()) {
      context.fillStyle = colour; context.fillRect(x, y + i * height / colours.length, 4, height / colours.length);
    }
    context.restore();
  }

  /** Text of which as much is shown as there is room for. */
  _text(text, x, y, room) {
    const key = `${this.context.font}|${room}|${text}`;
    let shown = this.texts.get(key);
    if (shown === undefined) {
      shown = this._fitting(text, room);
      if (this.texts.size > 20000) this.texts.clear();
      this.texts.set(key, shown);
    }
    this.context.fillText(shown, x, y);
  }

  _fitting(text, room) {
    const fits = shown => this.context.measureText(shown).width <= room;
    if (text.length < 500 && fits(text)) return text;
    let least = 4, most = Math.min(text.length, 500); // 4 fit, or nothing does
    while (most - least > 1) {
      const middle = (least + most) >> 1;
      if (fits(shortened(text, middle))) least = middle; else most = middle;
    }
    return shortened(text, least);
  }

  /** Lines from an item to what it uses and what uses it, across groups. */
  _connections(item) {
    const units = item instanceof Group ? (item.owner ? [item.owner] : []) : [item];
    const middle = this.layouts.rectangle(this.layouts.visible(item));
    if (!middle) return;
    const context = this.context;
    context.lineWidth = 2 / Math.max(0.5, this.scale);
    for (const unit of units) {
      for (const [others, down] of [[unit.before, false], [unit.after, true]]) {
        const ends = new Set(others.map(other => this.layouts.visible(other)));
        for (const other of ends) {
          const end = this.layouts.rectangle(other);
          if (!end || other === item) continue;
          const [a, b] = down ? [middle, end] : [end, middle];
          const from = [a[0] + a[2] / 2, a[1] + a[3]], to = [b[0] + b[2] / 2, b[1]];
          const bend = Math.max(24, Math.min(120, Math.abs(to[1] - from[1]) / 2));
          context.strokeStyle = context.fillStyle = down ? this.colours.changed : this.colours.accent;
          context.beginPath(); context.moveTo(...from);
          context.bezierCurveTo(from[0], from[1] + bend, to[0], to[1] - bend, ...to); context.stroke();
          this._arrow([to[0], to[1] - 10], to, 0, 0);
        }
      }
    }
  }
}

function titleOf(group) {
  if (!group.owner) return group.title;
  const turns = (group.owner.row.a ?? []).find(([name]) => name === "length" || name === "trips");
  return `${group.title}${turns ? ` × ${turns[1]}` : ""}`;
}
