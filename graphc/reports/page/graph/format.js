// Figures and elements.
"use strict";

const STEPS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** A figure with three digits and a prefix: 12.3 MB. An unknown one is a dash. */
function amount(value, unit) {
  if (value === undefined || value === null) return "–";
  for (const [step, prefix] of STEPS) {
    if (Math.abs(value) >= 0.9995 * step) return `${+(value / step).toPrecision(3)} ${prefix}${unit}`;
  }
  return `${+value.toPrecision(4)} ${unit}`.trim();
}

function percent(part) { return `${(100 * part).toFixed(1)}%`; }

function plural(count, noun) { return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`; }

/** An element. Text is always text: names from the program are never read as HTML. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (key === "style") made.style.cssText = value;
    else if (key.includes("-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The middle of long names is left out. */
function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.ceil((most - 1) * 0.6);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}

function baseName(file) { return file.split(/[\\/]/).pop(); }
