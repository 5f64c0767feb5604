/* -- text: everything that comes from the server is written as text, never as HTML ------------- */

function make(tag, kind, text) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function cell(row, text, kind) {
  const made = make("td", kind, text);
  row.append(made);
  return made;
}

function tell(problem) {
  at("problem").hidden = !problem;
  at("problem").textContent = problem;
}
