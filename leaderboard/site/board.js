"use strict";
const table = document.getElementById("board"), body = table.tBodies[0];
const filters = [...document.querySelectorAll("select[data-filter]")];
const lines = JSON.parse(document.getElementById("figure").textContent);

function sortBy(column, down) {
  const cell = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const number = [...body.rows].every((row) => row.cells[column].dataset.value !== undefined);
  const order = (a, b) => number ? Number(cell(a)) - Number(cell(b)) : cell(a).localeCompare(cell(b));
  body.append(...[...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)));
}

[...table.tHead.rows[0].cells].forEach((head, column) => {
  head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    sortBy(column, down);
  });
});

function filter() {
  for (const row of body.rows) {
    row.hidden = filters.some((f) => f.value && row.dataset[f.dataset.filter] !== f.value);
  }
  draw();
}
for (const one of filters) one.addEventListener("change", filter);

function made(name, attributes, text) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) found.setAttribute(key, attributes[key]);
  if (text) found.textContent = text;
  return found;
}

function draw() {
  const value = (name) => filters.find((f) => f.dataset.filter === name).value;
  const plot = document.getElementById("plot");
  const mine = lines.filter((l) => ["norm", "model", "data", "defence"].every((k) => !value(k) || l[k] === value(k)));
  document.getElementById("many").hidden = mine.length <= 16;
  const most = Math.max(1e-9, ...mine.flatMap((l) => l.points.map((p) => p[0])));
  const x = (v) => 60 + 660 * v / most, y = (v) => 330 - 300 * v, keys = document.getElementById("keys");
  plot.replaceChildren();
  keys.replaceChildren();
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    plot.append(made("line", {class: "axis", x1: 60, x2: 720, y1: y(v), y2: y(v), opacity: .3}));
    plot.append(made("text", {x: 52, y: y(v) + 4, "text-anchor": "end"}, String(v)));
  }
  for (const v of [0, most / 2, most]) plot.append(made("text", {x: x(v), y: 352, "text-anchor": "middle"}, v.toPrecision(2)));
  plot.append(made("text", {x: 390, y: 374, "text-anchor": "middle"}, "eps"));
  mine.forEach((l, i) => {
    const colour = `hsl(${(i * 137.5) % 360} 60% 50%)`, item = document.createElement("li"), dot = document.createElement("i");
    const points = l.points.map((p) => `${x(p[0])},${y(p[1])}`).join(" ");
    plot.append(made("polyline", {class: "line", points, stroke: colour}));
    dot.style.background = colour;
    item.append(dot, l.name);
    keys.append(item);
  });
}
draw();
