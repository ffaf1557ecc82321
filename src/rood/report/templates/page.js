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
  // paper is white whatever the screen is
  const paper = (on) => () => {
    printing = on;
    document.documentElement.classList.toggle("paper", on);
    drawAll();
  };
  addEventListener("beforeprint", paper(true));
  addEventListener("afterprint", paper(false));
  drawAll();
})();
