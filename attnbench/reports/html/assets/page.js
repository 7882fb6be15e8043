// Light or dark, and the charts: each is drawn when it is about to be seen, by Vega-Lite.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const tell = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();

  // Read when the first chart is drawn: of thousands of records it is megabytes.
  let read;
  // Vega looks names up in plain objects, where this one is no key: a character that isn't seen makes it one.
  const safe = (key, value) => (value === "__proto__" ? "__proto__\u2060" : value);
  const charts = () => (read ??= JSON.parse(document.getElementById("chart-data").textContent, safe));

  // Colours that follow the page: text and lines take the colour of the words around them.
  const ink = "currentColor";
  const config = {
    background: null,
    font: "system-ui, sans-serif",
    axis: {
      labelColor: ink, titleColor: ink, domainColor: ink, tickColor: ink, gridColor: ink,
      gridOpacity: 0.12, domainOpacity: 0.4, tickOpacity: 0.4, labelFontSize: 11.5, titleFontWeight: 500,
      titleFontSize: 12,
    },
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontWeight: 500 },
    view: { stroke: ink, strokeOpacity: 0.12 },
  };

  const filled = (node, view) => {
    if (Array.isArray(node)) return node.map((one) => filled(one, view));
    if (node === null || typeof node !== "object") return node;
    if ("$view" in node) return node.$view === "values" ? view.values : view.holds[node.$view];
    return Object.fromEntries(Object.entries(node).map(([key, one]) => [key, filled(one, view)]));
  };

  const element = (name, words, parent) => {
    const made = document.createElement(name);
    if (words !== undefined) made.textContent = words;
    parent?.append(made);
    return made;
  };

  // What may be as long as a file has it, and is broken; numbers stay whole.
  const NAMES = ["backend", "case"];

  const tableOf = (table, view) => {
    const made = element("table");
    element("caption", table.caption, made);
    const head = element("tr", undefined, element("thead", undefined, made));
    for (const [, name] of table.columns) element("th", name, head).scope = "col";
    const body = element("tbody", undefined, made);
    const rows = table.rows ?? view.values.filter((row) => (row.kind ?? "point") === "point");
    for (const row of rows) {
      const line = element("tr", undefined, body);
      table.columns.forEach(([key], place) => {
        const cell = element(place ? "td" : "th", row[key] ?? "", line);
        if (!place) cell.scope = "row";
        if (NAMES.includes(key)) cell.className = "name";
      });
    }
    return made;
  };

  const regionOf = (table, view) => {
    const region = element("div");
    region.className = "scroll";
    region.tabIndex = 0;
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", table.caption);
    region.append(tableOf(table, view));
    return region;
  };

  const folded = (table, view) => {
    const made = element("details");
    element("summary", `As a table: ${table.caption}`, made);
    // Made when it is asked for: most are not.
    made.addEventListener("toggle", () => {
      if (made.open && !made.querySelector("table")) made.append(regionOf(table, view));
    });
    return made;
  };

  const drawNow = async (figure) => {
    const { spec, views } = charts()[figure.dataset.chart];
    const view = views[Number(figure.querySelector("select")?.value ?? 0)];
    figure.querySelector(".about").textContent = view.about;
    figure.querySelector(".numbers").replaceChildren(...view.tables.map((one) => (one.open ? regionOf(one, view) : folded(one, view))));
    const canvas = figure.querySelector(".canvas");
    canvas.style.minWidth = view.holds.width ? `${view.holds.width}px` : "";
    canvas.setAttribute("aria-label", `${figure.querySelector("h2").textContent}: ${view.about}`);
    const options = { actions: false, renderer: "svg", ast: true, config, tooltip: { theme: "custom" } };
    figure.drawn?.finalize();
    figure.drawn = await vegaEmbed(canvas, filled(spec, view), options);
    figure.dataset.drawn = view.label;
  };

  // One after the other: of two at once in one place the slower would stay, whichever was chosen last.
  const draw = (figure) => (figure.queue = (figure.queue ?? Promise.resolve()).then(() => drawNow(figure)));

  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) {
          seen.unobserve(target);
          draw(target);
        }
      }
    },
    { rootMargin: "400px" },
  );
  const figures = [...document.querySelectorAll("figure[data-chart]")].filter((one) => one.querySelector(".canvas"));
  for (const figure of figures) {
    figure.querySelector("select")?.addEventListener("change", () => draw(figure));
    seen.observe(figure);
  }
  // Paper has no scrolling: what is printed is drawn before.
  addEventListener("beforeprint", () => {
    for (const figure of figures) if (!figure.drawn) draw(figure);
  });
  performance.mark("interactive");
})();
