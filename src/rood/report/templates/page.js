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

  const merged = (base, extra) => {
    const result = { ...base };
    for (const [key, value] of Object.entries(extra)) {
      const nested = value && typeof value === "object" && !Array.isArray(value) && result[key];
      result[key] = nested ? merged(result[key], value) : value;
    }
    return result;
  };

  const fitted = (layout, traces, width) => {
    const named = traces.filter((trace) => trace.showlegend !== false).length;
    // on a phone the legend needs more lines than on a desk
    const lines = Math.max(0, Math.ceil((named * 130) / width) - 1);
    return { ...layout, width, height: (layout.height || 400) + 20 * lines };
  };

  const draw = (name) => {
    const place = document.getElementById(`plot-${name}`);
    if (!place) return;
    const figure = figures[name];
    const drawing = figure.drawings[selects(name).map((select) => select.value).join(".")];
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
