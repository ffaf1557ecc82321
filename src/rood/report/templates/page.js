"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures-json").textContent);
  const selects = (name) => [...document.querySelectorAll(`select[data-figure="${name}"]`)];
  let printing = false;

  // Python writes colours as var(--name): the style sheet knows their values in light and dark
  const painted = (node, style, key = "") => {
    if (Array.isArray(node)) return node.map((item) => painted(item, style, key));
    if (node && typeof node === "object") {
      return Object.fromEntries(Object.entries(node).map(([k, v]) => [k, painted(v, style, k)]));
    }
    const name = /color$/.test(key) && /^var\((--[a-z0-9-]+)\)$/.exec(node);
    return name ? style.getPropertyValue(name[1]).trim() : node;
  };

  // "like" names the style that a trace, line or note shares with others
  const whole = (node, styles) => {
    if (Array.isArray(node)) return node.map((item) => whole(item, styles));
    if (!node || typeof node !== "object") return node;
    const { like, ...own } = node;
    const full = Object.fromEntries(Object.entries(own).map(([k, v]) => [k, whole(v, styles)]));
    return like === undefined ? full : { ...styles[like], ...full };
  };

  const merged = (base, extra) => {
    const result = { ...base };
    for (const [key, value] of Object.entries(extra)) {
      const nested = value && typeof value === "object" && !Array.isArray(value) && result[key];
      result[key] = nested ? merged(result[key], value) : value;
    }
    return result;
  };

  // a legend takes as many lines as its longest name leaves columns: few on a phone
  const fitted = (layout, traces, width) => {
    const names = traces.filter((trace) => trace.showlegend !== false).map((t) => t.name || "");
    const widest = 56 + 7 * Math.max(0, ...names.map((name) => name.length));
    const columns = Math.max(1, Math.floor((width - 40) / widest));
    const lines = Math.ceil(names.length / columns);
    return { ...layout, width, height: (layout.height || 400) + 20 * Math.max(0, lines - 1) };
  };

  const draw = (name) => {
    const place = document.getElementById(`plot-${name}`);
    if (!place) return;
    const figure = figures[name];
    const key = selects(name).map((select) => select.value).join(".");
    const drawing = whole(figure.drawings[key], figure.styles);
    const words = document.getElementById(`words-${name}`);
    place.classList.toggle("absent", !drawing);
    if (!drawing) {
      Plotly.purge(place);
      place.textContent = words.textContent = "There are no numbers for this choice.";
      return;
    }
    if (words.textContent !== drawing.summary) words.textContent = drawing.summary;
    if (!place.querySelector(".plot-container")) place.textContent = "";
    const style = getComputedStyle(document.documentElement);
    const layout = painted(merged(figure.layout, drawing.layout), style);
    layout.font.family = getComputedStyle(document.body).fontFamily;
    const chosen = document.querySelector(`select[data-highlight="${name}"]`);
    const line = chosen && chosen.value ? chosen.selectedOptions[0].textContent : "";
    const data = painted(drawing.data, style).map((trace) =>
      line && trace.meta !== line ? { ...trace, opacity: 0.15 } : trace);
    const width = printing ? 640 : place.clientWidth;
    Plotly.react(place, data, fitted(layout, data, width), { displayModeBar: false });
  };

  const drawAll = () => Object.keys(figures).forEach(draw);
  document.addEventListener("change", (event) => {
    const { figure, highlight } = event.target.dataset || {};
    if (figure || highlight) draw(figure || highlight);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let lastWidth = 0;
  let waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === lastWidth) return;
    lastWidth = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(drawAll);
  });
  // paper is white whatever the screen is, and cannot be unfolded
  let unfolded = [];
  const paper = (on) => () => {
    printing = on;
    document.documentElement.classList.toggle("paper", on);
    if (on) {
      const folded = document.querySelectorAll("#findings > details, #fixed, .flag");
      unfolded = [...folded].filter((d) => !d.open);
    }
    unfolded.forEach((d) => { d.open = on; });
    drawAll();
  };
  addEventListener("beforeprint", paper(true));
  addEventListener("afterprint", paper(false));
  drawAll();
})();
(() => {
  // what opens stands beside what was pressed
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("[popovertarget]");
    const note = button && document.getElementById(button.getAttribute("popovertarget"));
    if (!note || !note.showPopover) return;
    const at = button.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, innerWidth - Math.min(448, 0.92 * innerWidth) - 8));
    const below = at.bottom < innerHeight / 2;
    const kept = (gap) => `${Math.max(8, Math.min(gap + 6, innerHeight / 2))}px`; // in sight
    Object.assign(note.style, {
      margin: "0",
      inset: "auto",
      left: `${left}px`,
      top: below ? kept(at.bottom) : "auto",
      bottom: below ? "auto" : kept(innerHeight - at.top),
    });
  }, true);
  document.querySelectorAll(".popover a").forEach((link) => {
    link.addEventListener("click", () => link.closest(".popover").hidePopover());
  });

  const tool = (text, name, act) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: `tool ${name}`, textContent: text });
    button.addEventListener("click", () => act(button));
    return button;
  };

  const command = document.getElementById("command");
  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(command.textContent);
    } catch {
      getSelection().selectAllChildren(command);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  if (command) command.after(tool("Copy", "copy", copy));

  const shown = (cell) => cell.innerText.replace(/\s+/g, " ").trim();
  const value = (cell) => (cell.dataset.value === undefined ? shown(cell) : cell.dataset.value);
  const before = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // unknown ones last
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  const sort = (table, column, head) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    table.querySelectorAll("thead th").forEach((th) => th.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const lines = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a.cells[column]), value(b.cells[column])];
      return x === "" || y === "" ? before(x, y) : (down ? -1 : 1) * before(x, y);
    });
    body.append(...lines);
  };

  // a spreadsheet would run text that begins like a formula
  const cell = (text) => {
    const safe = /^'*[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return `"${safe.replaceAll('"', '""')}"`;
  };
  const save = (table) => {
    const lines = [...table.rows].map((row) => [...row.cells].map((c) => cell(value(c))).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    link.download = `${table.dataset.table.replace(/[^\w-]+/g, "-").slice(0, 80)}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  document.querySelectorAll("table[data-table]").forEach((table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "sort" });
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
      head.setAttribute("aria-sort", "none");
    });
    const place = table.closest(".scroll");
    const button = tool("CSV", "csv", () => save(table));
    const above = place.previousElementSibling;
    if (above && above.tagName === "H3") above.append(button);
    else place.before(button);
  });
})();
